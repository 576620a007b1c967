"""Torque bounds of the verifier against Pinocchio."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook
from verifier_cases import TrueArm, make_plan

from sysid_ros.core.certification.chain import Motion, enclose_path, stop_corners
from sysid_ros.core.certification.stop_model import counted_friction
from sysid_ros.core.certification.torque import TorqueBounds, spread_parameters
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.excitation.model import TorqueDemand
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.regressors.rest_torque import RestTorque, WeighedBox
from sysid_ros.core.trajectories.braking import BrakedTrajectory, clock_rates

ZERO = np.zeros(7)
NAMES = ("kinova_gen3_2f85", "kuka_lbr_iiwa14")


def pieces_of(trajectory, count):
    half = np.full(count, 0.5 * trajectory.duration / count)
    return half * (2 * np.arange(count) + 1), half


def build_motion(robot, trajectory, middle, half):
    return Motion(JointTree.of(robot, in_base=True), enclose_path(trajectory, middle, half))


def pinocchio_regressors(robot, q, v, a):
    """Of gravity, of ``M a + c``, and of ``M v``, each (n, 10 n)."""
    model, data, zero = robot.pin_model, robot.pin_model.createData(), np.zeros(robot.n)

    def full(*state):
        return np.array(pin.computeJointTorqueRegressor(model, data, *state))

    gravity = full(q, zero, zero)
    return gravity, full(q, v, a) - gravity, full(q, zero, v) - gravity


@pytest.mark.parametrize("name", NAMES)
def test_regressors_and_their_derivatives(name):
    robot, rng = load_textbook(name), np.random.default_rng(0)
    plan = make_plan(robot, rng)
    middle, half = (part[::500] for part in pieces_of(plan, 2000))  # short: cubic terms are in the lower ones
    joints, bodies = np.triu_indices(robot.n)
    series = build_motion(robot, plan, middle, half).regressors()
    step = 1e-4
    for piece, (time, length) in enumerate(zip(middle, half, strict=True)):
        states = [[x[0] for x in plan.sample([time + k * step])] for k in (-1, 0, 1)]
        before, here, after = (pinocchio_regressors(robot, *state) for state in states)
        for part in range(3):
            found = series[part][..., piece]

            def blocks(matrix):
                return np.array([matrix[i, 10 * b : 10 * b + 10] for i, b in zip(joints, bodies, strict=True)])

            np.testing.assert_allclose(found[0], blocks(here[part]), atol=1e-10)
            slope = (blocks(after[part]) - blocks(before[part])) / (2 * step)
            np.testing.assert_allclose(found[1] / length, slope, atol=2e-5)
            curve = (blocks(after[part]) - 2 * blocks(here[part]) + blocks(before[part])) / step**2
            np.testing.assert_allclose(2.0 * found[2] / length**2, curve, atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("speed", [1.0, 3.0])
def test_no_arm_of_the_boxes_needs_more_torque(name, speed):
    robot = load_textbook(name)
    payload = robot.payload_prior.box, robot.payload_prior.nominal
    boxes = robot.theta_box, payload[0]
    rng = np.random.default_rng(3)
    closest = np.inf
    for _ in range(10):
        plan = make_plan(robot, rng, speed)
        middle, half = pieces_of(plan, 12)
        bounds = TorqueBounds(spread_parameters(robot, boxes), build_motion(robot, plan, middle, half))
        bound, at_middle = bounds.evaluate(1.0, 1.0, 0.0)
        assert np.all(at_middle <= bound + 1e-9)
        drawn = [TrueArm(robot, *payload, rng, is_corner=k > 1) for k in range(6)]
        for piece in range(12):
            for u in (-1.0, 1.0, *rng.uniform(-1, 1, 2)):
                state = [x[0] for x in plan.sample([middle[piece] + u * half[piece] * (1 - 1e-12)])]
                for arm in drawn:
                    torque = np.abs(arm.torque(*state))
                    assert np.all(torque <= bound[:, piece] + 1e-9)
                    closest = min(closest, (bound[:, piece] / torque).min())
    assert closest < 1.5  # not far from what happens


def test_the_worst_corner_reaches_the_bound_in_the_middle():
    """In the middle the bound is exact: the corner with the signs of the regressor reaches it."""
    robot = load_textbook("kinova_gen3_2f85")
    boxes = robot.theta_box, robot.payload_prior.box
    plan = make_plan(robot, np.random.default_rng(5))
    middle, half = pieces_of(plan, 5)
    _, at_middle = TorqueBounds(spread_parameters(robot, boxes), build_motion(robot, plan, middle, half)).evaluate(
        1.0, 1.0, 0.0
    )
    q, v, a = (x[0] for x in plan.sample([middle[2]]))
    regressor = np.array(pin.computeJointTorqueRegressor(robot.pin_model, robot.pin_model.createData(), q, v, a))
    for joint in range(7):
        row, friction = regressor[joint], np.array([v[joint], a[joint], 1.0])
        totals = []
        for sign in (-1.0, 1.0):

            def best(box, columns, sign=sign):
                return np.where(sign * columns > 0.0, box.upper, box.lower) @ columns

            f = [robot.friction(bound)[joint] for bound in (boxes[0].lower, boxes[0].upper)]
            rub = np.where(sign * friction > 0.0, f[1][1:], f[0][1:]) @ friction
            arm_box = type(boxes[0])(boxes[0].lower[:70], boxes[0].upper[:70])
            totals.append(abs(best(arm_box, row) + best(boxes[1], row[60:]) + rub) + f[1][0])
        assert at_middle[joint, 2] == pytest.approx(max(totals), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("clock", [(1.0, 0.0), (0.6, -1.5)])
def test_no_weighed_arm_needs_more_torque(name, clock):
    """What weighing tells of an arm takes something off, but never what that arm may need."""
    robot, (rate, slowdown) = load_textbook(name), clock
    prior, rng = robot.payload_prior, np.random.default_rng(11)
    closest, most = np.inf, 0.0
    for trial in range(12):
        plan = make_plan(robot, rng, 1.0)
        middle, half = pieces_of(plan, 12)
        arm = TrueArm(robot, prior.box, prior.nominal, rng, is_corner=trial % 2 == 1)
        posture = plan.evaluate(rng.uniform(0.0, plan.duration))[0]
        error = rng.uniform(0.05, 1.0, robot.n)
        gravity = pin.computeGeneralizedGravity(arm.model, arm.data, posture)
        measured = Box.around(gravity + rng.choice([-1.0, 1.0], robot.n) * error, error)
        weighed = WeighedBox.of(prior.box, RestTorque(tuple(robot.joint_names), posture, measured))
        motion = build_motion(robot, plan, middle, half)
        (plain, _), (bound, at_middle) = (
            TorqueBounds(spread_parameters(robot, (robot.theta_box, box)), motion).evaluate(rate, rate**2, slowdown)
            for box in (prior.box, weighed)
        )
        assert np.all(bound <= plain + 1e-9) and np.all(at_middle <= bound + 1e-9)
        most = max(most, (plain - bound).max())
        for piece in range(12):
            for u in (-1.0, 0.0, 1.0, *rng.uniform(-1, 1, 3)):
                q, v, a = (x[0] for x in plan.sample([middle[piece] + u * half[piece] * (1 - 1e-12)]))
                torque = np.abs(arm.torque(q, rate * v, rate**2 * a + slowdown * v))
                assert np.all(torque <= bound[:, piece] + 1e-9)
                closest = min(closest, (bound[:, piece] - torque).min())
    assert most > 3.0 and closest < 1.5  # [Nm]


@pytest.mark.parametrize("seed", range(4))
def test_what_decides_is_as_exact_as_when_everything_is_worked_out(seed):
    """Largest shares of the limits, and all that are larger than the largest one in a middle, over all clocks."""
    robot, rng = load_textbook("kinova_gen3_2f85"), np.random.default_rng(seed)
    prior, plan = robot.payload_prior, make_plan(robot, rng, 1.0 + seed)
    middle, half = pieces_of(plan, 12)
    arm = TrueArm(robot, prior.box, prior.nominal, rng, is_corner=True)
    posture = plan.evaluate(rng.uniform(0.0, plan.duration))[0]
    measured = Box.around(pin.computeGeneralizedGravity(arm.model, arm.data, posture), np.full(robot.n, 0.2))
    weighed = WeighedBox.of(prior.box, RestTorque(tuple(robot.joint_names), posture, measured))
    bounds = TorqueBounds(spread_parameters(robot, (robot.theta_box, weighed)), build_motion(robot, plan, middle, half))
    clocks, limits = stop_corners() / [1.0, 1.0, 0.8], rng.uniform(20.0, 80.0, robot.n)
    feedback = [rng.uniform(0.0, 10.0, (robot.n, 12)) for _ in clocks]
    every = [bounds.evaluate(*clock) for clock in clocks]
    exact, exact_middle = (
        np.maximum.reduce([size[k] + more for size, more in zip(every, feedback, strict=True)]) / limits[:, None]
        for k in (0, 1)
    )
    bound, at_middle = (one / limits[:, None] for one in bounds.largest(clocks, feedback, limits))
    assert at_middle.max() == pytest.approx(exact_middle.max(), rel=1e-12)
    decides = bound > exact_middle.max()
    assert decides.any() and not decides.all()
    np.testing.assert_allclose(bound[decides], exact[decides], rtol=1e-12)
    assert np.all(bound >= exact - 1e-12) and np.all(exact[~decides] <= exact_middle.max())


def instants_of_stops(plan, brake_time, half, rng):
    """Random instants of stops begun at any time: time of the path, number of its piece, state of the stop."""
    for begin in rng.uniform(0.0, plan.duration, 4):
        stop = BrakedTrajectory(plan, begin, brake_time)
        for x in rng.uniform(0.0, 1.0, 12):
            clock = begin + brake_time * (x - x**3 + 0.5 * x**4)
            if clock < plan.duration:
                piece = min(int(clock / (2 * half[0])), len(half) - 1)
                yield clock, piece, stop.evaluate(begin + x * brake_time)


@pytest.mark.parametrize("brake_time", [0.3, 1.2])
def test_no_stop_needs_more_torque(brake_time):
    """Real stops, begun at any time, simulated as trajectories."""
    robot = load_textbook("kinova_gen3_2f85")
    payload = robot.payload_prior.box, robot.payload_prior.nominal
    boxes = robot.theta_box, payload[0]
    rng = np.random.default_rng(7)
    closest = np.inf
    for _ in range(6):
        plan = make_plan(robot, rng, 2.0)
        middle, half = pieces_of(plan, 15)
        bounds = TorqueBounds(spread_parameters(robot, boxes), build_motion(robot, plan, middle, half))
        corners = [bounds.evaluate(r, square, slow / brake_time)[0] for r, square, slow in stop_corners()]
        bound = np.maximum.reduce(corners)
        drawn = [TrueArm(robot, *payload, rng, is_corner=k > 0) for k in range(4)]
        for _, piece, state in instants_of_stops(plan, brake_time, half, rng):
            for arm in drawn:
                torque = np.abs(arm.torque(*state))
                assert np.all(torque <= bound[:, piece] + 1e-9)
                closest = min(closest, (bound[:, piece] / torque).min())
    assert closest < 1.5


@pytest.mark.parametrize("speed", [0.3, 0.8, 2.0])
def test_no_law_needs_more_torque_with_the_friction_it_compensates(speed):
    """On a path and in stops along it; slow ones need less than with friction in any direction."""
    robot, law = load_textbook("kinova_gen3_2f85"), RobustSettings()
    payload, rng = (robot.payload_prior.box, robot.payload_prior.nominal), np.random.default_rng(17)
    spread, brake_time, closest, saved = spread_parameters(robot, (robot.theta_box, payload[0])), 0.8, np.inf, 0.0
    for _ in range(6):
        plan = make_plan(robot, rng, speed)
        middle, half = pieces_of(plan, 15)
        motion = build_motion(robot, plan, middle, half)
        both = [TorqueBounds(spread, motion, friction_speed) for friction_speed in (law.friction_speed, 0.0)]
        clocks = stop_corners() / [1.0, 1.0, brake_time]
        bound, plain = (np.maximum.reduce([bounds.evaluate(*clock)[0] for clock in clocks]) for bounds in both)
        path, middles = both[0].evaluate(1.0, 1.0, 0.0)
        assert np.all(bound <= plain + 1e-12) and np.all(middles <= path + 1e-9)
        saved = max(saved, (plain - bound).max())
        drawn = [TrueArm(robot, *payload, rng, is_corner=k > 0) for k in range(4)]

        def needed(arm, q, v, a):
            coulomb = arm.friction[:, 0]
            return np.abs(arm.torque(q, v, a) - coulomb * arm.sign + coulomb * law.friction_share(v))

        for clock, piece, in_stop in instants_of_stops(plan, brake_time, half, rng):
            for arm in drawn:
                assert np.all(needed(arm, *plan.evaluate(clock)) <= path[:, piece] + 1e-9)
                torque = needed(arm, *in_stop)
                assert np.all(torque <= bound[:, piece] + 1e-9)
                closest = min(closest, (bound[:, piece] / torque).min())
    assert closest < 1.5
    most = robot.friction(robot.theta_box.upper)[:, 0].max()
    assert saved == pytest.approx(most, abs=1e-9)  # all of it, of joints that hardly move


def test_the_friction_that_counts_is_an_upper_bound_and_convex_in_the_rate():
    law, rng = RobustSettings(), np.random.default_rng(0)
    speed, rate = rng.uniform(0.0, 1.2, 4000), rng.uniform(0.0, 1.0, 4000)
    counted = counted_friction(speed, rate, law.friction_speed)
    slower = speed * rng.uniform(-1.0, 1.0, 4000)
    assert np.all(np.abs(law.friction_share(rate * slower)) <= counted + 1e-12)
    np.testing.assert_allclose(counted_friction(speed, 1.0, law.friction_speed), law.friction_share(speed), atol=1e-12)
    between, other = 0.5 * (rate + rate[::-1]), counted_friction(speed, rate[::-1], law.friction_speed)
    assert np.all(counted_friction(speed, between, law.friction_speed) <= 0.5 * (counted + other) + 1e-12)
    assert np.all(counted_friction(speed, rate, 0.0) == 1.0)


def test_corners_enclose_every_stop():
    """Every state of a stop is a convex combination of the corners; the corners are not far from the curve."""
    from scipy.optimize import linprog

    corners = stop_corners()
    x = np.linspace(0.0, 1.0, 101)
    rate, slowdown = clock_rates(x, 1.0)
    curve = np.stack([rate, rate**2, slowdown], axis=1)
    for point in curve[::5]:
        equations = np.vstack([corners.T, np.ones(len(corners))])
        assert linprog(np.zeros(len(corners)), A_eq=equations, b_eq=[*point, 1.0], bounds=(0, None)).status == 0
    directions = np.random.default_rng(0).normal(size=(500, 3))
    surplus = (corners @ directions.T).max(axis=0) - (curve @ directions.T).max(axis=0)
    assert surplus.min() > -1e-9 and surplus.max() < 0.12 * np.linalg.norm(directions, axis=1).max()
    assert len(corners) < 25


def boxes_of(robot, kind):
    """A share of the robot's own boxes, or boxes of single parameters where nothing makes up for what is missing."""
    if not isinstance(kind, str):
        return [Box.around(box.center, kind * box.radius) for box in (robot.theta_box, robot.payload_prior.box)]
    single = np.zeros(98)
    inertial, friction = [0, 12, 25, 36, 48, 59, 61], 70 + 4 * np.arange(7)
    entries = {"inertial": inertial, "viscous": friction + 1, "armature": friction + 2}[kind.split()[0]]
    single[entries] = 1.0
    zero = Box(np.zeros(10), np.zeros(10))
    return [Box(single, single) if kind.endswith("exact") else Box(-single, single), zero]


KINDS = [
    0.0,
    0.03,
    1.0,
    *(f"{what} {how}" for what in ("inertial", "viscous", "armature") for how in ("exact", "wide")),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clock", [(1.0, 0.0), (0.7, -1.5), (0.0, -3.0)])
def test_the_exact_worst_case_is_enclosed_between_the_middles(kind, clock):
    """Against ``|W c| + |W| r`` of another regressor at many times."""
    robot, rng = load_textbook("kinova_gen3_2f85"), np.random.default_rng(9)
    boxes = boxes_of(robot, kind)
    exact = TorqueDemand(robot, *boxes, ZERO)
    rate, slowdown = clock
    u = np.linspace(-1.0, 1.0, 33)
    closest, needed = np.inf, 0.0
    for count in (1, 3, 40):
        plan = make_plan(robot, rng, 1.5)
        middle, half = pieces_of(plan, count)
        bounds = TorqueBounds(spread_parameters(robot, boxes), build_motion(robot, plan, middle, half))
        bound, _ = bounds.evaluate(rate, rate**2, slowdown)
        q, v, a = plan.sample((middle[:, None] + half[:, None] * u * (1 - 1e-12)).ravel())
        truth = exact.evaluate(q, rate * v, rate**2 * a + slowdown * v).reshape(count, u.size, -1)
        assert np.all(truth.max(axis=1).T <= bound + 1e-9)
        closest = min(closest, (bound - truth.max(axis=1).T).min())
        needed = max(needed, (truth.max(axis=1) - np.maximum(truth[:, 0], truth[:, -1])).max())
    # Tight, and the largest torque is not always at the ends of a piece.
    assert closest < 1e-2 and (needed > 1e-3 or clock[0] == 0.0)
