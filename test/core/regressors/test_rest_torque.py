"""What torques at rest take off worst cases is what linear programs say, and never more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.model.sampling import sample_payload
from sysid_ros.core.regressors.rest_torque import (
    RestSavings,
    RestTorque,
    WeighedBox,
    gravity_rows,
    largest_rest_torque,
    rest_of,
)
from sysid_ros.core.regressors.torque import TorqueRegressor


def weigh(robot: RobotModel, posture: np.ndarray, payload: np.ndarray, error: np.ndarray) -> RestTorque:
    """The torque at rest of the nominal arm with a payload, known within an error."""
    torque = ArmDynamics(robot, robot.theta_nominal, payload).gravity(posture)
    return RestTorque(tuple(robot.joint_names), posture, Box.around(torque, error))


def largest(robot: RobotModel, payload: Box, rest: RestTorque, joint: int, row: np.ndarray) -> float:
    """The largest torque over boxes and strip by an independent solver, less that of the centre."""
    moved = slice(INERTIAL * joint, INERTIAL * robot.n)
    arm, last = robot.theta_box.select(slice(0, INERTIAL * robot.n)), robot.inertial_slice(robot.n)
    lower, upper = arm.lower.copy(), arm.upper.copy()
    lower[last] += payload.lower
    upper[last] += payload.upper
    d = gravity_rows(robot, rest.posture)[joint]
    result = linprog(
        -row,
        np.stack([d[moved], -d[moved]]),
        [rest.torque.upper[joint], -rest.torque.lower[joint]],
        bounds=np.column_stack([lower, upper])[moved],
        method="highs-ds",
    )
    assert result.status == 0
    return float(-result.fun - row @ (0.5 * (lower + upper))[moved])


@pytest.mark.parametrize("seed", range(6))
def test_savings_are_those_of_the_linear_program(robot: RobotModel, seed: int):
    rng = np.random.default_rng(seed)
    prior, regressor = robot.payload_prior, TorqueRegressor(robot)
    at, payload = rng.uniform(-1.5, 1.5, size=robot.n), sample_payload(prior, rng)
    rest = weigh(robot, at, payload, rng.uniform(0.1, 2.0, size=robot.n))
    savings = RestSavings(robot, robot.theta_box, prior.box, rest)
    states = [at + scale * rng.normal(size=(2, robot.n)) for scale in (0.0, 0.3, 3.0)]
    q = np.concatenate(states)
    v, a = (scale * rng.normal(size=q.shape) for scale in (0.5, 1.0))
    v[0] = a[0] = 0.0
    rows = regressor.evaluate(q, v, a)[..., : INERTIAL * robot.n]
    for joint in range(robot.n):
        for sign in (1.0, -1.0):
            some = sign * rows[:, joint, INERTIAL * joint :]
            saved, places = savings.evaluate(joint, some), savings.locate(joint, some)
            for row, value, place in zip(some, saved, places, strict=True):
                wanted = largest(robot, prior.box, rest, joint, row)
                box = robot.theta_box.radius[INERTIAL * joint : INERTIAL * robot.n].copy()
                box[-INERTIAL:] += prior.box.radius
                assert np.abs(row) @ box - value == pytest.approx(wanted, abs=1e-8)
                assert row @ place == pytest.approx(wanted, abs=1e-8)
                assert np.all(np.abs(place) <= box * (1.0 + 1e-9))


@pytest.mark.parametrize("is_weighed", [False, True])
def test_largest_torques_at_rest_are_those_of_the_linear_program(robot: RobotModel, is_weighed: bool):
    rng, prior = np.random.default_rng(8), robot.payload_prior
    last, friction = (
        robot.inertial_slice(robot.n),
        [robot.friction(x)[:, 3] for x in (robot.theta_box.lower, robot.theta_box.upper)],
    )
    for _ in range(3):
        at, payload = rng.uniform(-1.5, 1.5, size=robot.n), sample_payload(prior, rng)
        wide = 1e3 if not is_weighed else 1.0
        rest = weigh(robot, at + 0.2 * rng.normal(size=robot.n), payload, wide * rng.uniform(0.1, 2.0, size=robot.n))
        box = WeighedBox.of(prior.box, rest) if is_weighed else prior.box
        found, rows = largest_rest_torque(robot, (robot.theta_box, box), at), gravity_rows(robot, at)
        center = robot.theta_box.center[: INERTIAL * robot.n].copy()
        center[last] += prior.box.center
        for joint, row in enumerate(rows):
            own = row[INERTIAL * joint :]
            sides = [
                sign * row @ center
                + largest(robot, prior.box, rest, joint, sign * own)
                + max(sign * one[joint] for one in friction)
                for sign in (1.0, -1.0)
            ]
            assert found[joint] == pytest.approx(max(sides), abs=1e-7)


def test_at_its_own_posture_nothing_is_left_but_the_error(robot: RobotModel):
    at = np.array([0.3, 0.8, -0.2, 1.2, 0.5, 0.9, 0.1])
    payload, error = robot.payload_prior.nominal, np.full(robot.n, 0.2)
    rest = weigh(robot, at, payload, error)
    savings = RestSavings(robot, robot.theta_box, robot.payload_prior.box, rest)
    rows = gravity_rows(robot, at)
    joint = 1
    row = rows[joint, INERTIAL * joint :]
    saved = savings.evaluate(joint, row[None])
    radius = robot.theta_box.radius[INERTIAL * joint : INERTIAL * robot.n].copy()
    radius[-INERTIAL:] += robot.payload_prior.box.radius
    center = robot.theta_box.center[INERTIAL * joint : INERTIAL * robot.n].copy()
    center[-INERTIAL:] += robot.payload_prior.box.center
    reach = row @ center + np.abs(row) @ radius - saved[0]
    assert reach == pytest.approx(rest.torque.upper[joint], abs=1e-8)
    assert np.abs(row) @ radius > 5.0  # [Nm], without it


def test_every_body_that_agrees_stays_below(robot: RobotModel):
    """Monte Carlo: arms and payloads in the boxes that would have read the same torque at rest."""
    rng = np.random.default_rng(1)
    prior, at = robot.payload_prior, np.array([0.3, 0.8, -0.2, 1.2, 0.5, 0.9, 0.1])
    error = np.full(robot.n, 0.8)
    rest = weigh(robot, at, prior.nominal, error)
    savings = RestSavings(robot, robot.theta_box, prior.box, rest)
    regressor, found = TorqueRegressor(robot), 0
    radius = robot.theta_box.radius[: INERTIAL * robot.n].copy()
    center = robot.theta_box.center[: INERTIAL * robot.n].copy()
    radius[-INERTIAL:] += prior.box.radius
    center[-INERTIAL:] += prior.box.center
    q, v, a = (scale * rng.normal(size=(40, robot.n)) for scale in (1.0, 0.5, 1.0))
    rows = regressor.evaluate(at + q, v, a)[..., : INERTIAL * robot.n]
    bound = np.abs(rows) @ radius
    for joint in range(robot.n):
        bound[:, joint] -= savings.evaluate(joint, rows[:, joint, INERTIAL * joint :])
    for _ in range(400):
        theta = center + rng.uniform(-1.0, 1.0, size=radius.size) * radius
        torque = gravity_rows(robot, at) @ theta
        agrees = (rest.torque.lower <= torque) & (torque <= rest.torque.upper)
        found += int(agrees.sum())
        above = (rows @ (theta - center))[:, agrees] - bound[:, agrees]
        assert np.all(above <= 1e-9)
    assert found > 200


def test_a_strip_beside_the_boxes_saves_nothing(robot: RobotModel):
    at = robot.home
    rest = weigh(robot, at, robot.payload_prior.nominal, np.full(robot.n, 1e3))
    savings = RestSavings(robot, robot.theta_box, robot.payload_prior.box, rest)
    saved = savings.evaluate(1, gravity_rows(robot, at)[1:2, INERTIAL:])
    assert saved.tolist() == [0.0]


def test_a_box_with_a_torque_is_a_box(robot: RobotModel):
    box = robot.payload_prior.box
    rest = weigh(robot, robot.home, robot.payload_prior.nominal, np.ones(robot.n))
    weighed = WeighedBox.of(box, rest)
    assert rest_of(weighed) is rest and rest_of(box) is None and WeighedBox.of(box, None) is box
    assert np.array_equal(weighed.center, box.center) and weighed.is_subset_of(box)


def test_what_does_not_fit_is_refused(robot: RobotModel):
    names = tuple(robot.joint_names)
    with pytest.raises(ParameterOutOfRange, match="posture of a torque at rest.*each of 7 joints"):
        RestTorque(names, np.zeros(6), Box(np.zeros(7), np.ones(7)))
    with pytest.raises(ParameterOutOfRange, match="torque of a torque at rest"):
        RestTorque(names, np.zeros(7), Box(np.zeros(7), np.full(7, np.inf)))
    other = RestTorque(tuple("abcdefg"), np.zeros(7), Box(np.zeros(7), np.ones(7)))
    with pytest.raises(ParameterOutOfRange, match="joints of the torque at rest.*joint_1"):
        RestSavings(robot, robot.theta_box, robot.payload_prior.box, other)
