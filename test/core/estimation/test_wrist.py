"""Bounds by a wrist sensor: the truth is inside, with any bias and errors of any sign."""

import dataclasses

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ModelError, SysidError
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.windows.samples import SampleBlock, Wrenches
from sysid_ros.core.estimation.wrist import WristSensor, bound_by_wrench, with_wrench
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import frame_placement
from sysid_ros.core.model.sampling import sample_payload

SETTINGS, SECONDS, RATE = EstimatorSettings(), 1.5, 100.0
FRAME = "end_effector_link"


@pytest.fixture(scope="module")
def robot():
    return load_robot("kinova_gen3_2f85")


def weight(robot, q, payload):
    """The wrench of a body at rest on the sensor, by Pinocchio's own force on an inertia."""
    model, data = robot.pin_model, robot.pin_model.createData()
    pin.forwardKinematics(model, data, q)
    inertia = pin.Inertia.FromDynamicParameters(payload)
    rotation, origin = frame_placement(robot, FRAME)
    gravity = pin.Motion(data.oMi[robot.n].rotation.T @ robot.gravity, np.zeros(3))
    force = inertia * gravity  # momentum of a body that moves with the acceleration of gravity
    return (pin.SE3(rotation, origin).inverse() * force).vector


def run(robot, postures, load, bias, error, sign=1.0, begin=0.0):
    times, count = np.arange(round(SECONDS * RATE)) / RATE, round(SECONDS * RATE)
    blocks, stamps, rows = [], [], []
    for k, q in enumerate(postures):
        own = np.round(1e9 * (100.0 + begin + 10.0 * k + times)).astype(np.int64)
        none = np.zeros((count, robot.n))
        blocks.append(SampleBlock(own, k * 1000 + np.arange(count), np.tile(q, (count, 1)), none, none))
        stamps.append(own[::2])
        rows.append(np.tile(sign * weight(robot, q, load) + bias + error[k], (len(own[::2]), 1)))
    return blocks, Wrenches(np.concatenate(stamps), np.concatenate(rows))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_truth_is_inside_with_errors_of_any_sign(seed, sign, robot):
    rng = np.random.default_rng(seed)
    payload = sample_payload(robot.payload_prior, rng)
    tool = from_com_form(0.9, np.array([0.0, 0.0, -0.1]), 0.001 * np.eye(3))
    sensor = WristSensor(FRAME, 0.3, 0.02, 0.0)
    bias = rng.uniform(-20.0, 20.0, 6) * np.repeat([1.0, 0.1], 3)
    size = np.repeat([sensor.force_error, sensor.moment_error], 3)
    postures = robot.home + rng.uniform(-0.8, 0.8, (4, robot.n))
    errors = size * rng.choice((-1.0, 1.0), (2, 4, 6))
    loaded = run(robot, postures, tool + payload, bias, errors[0], sign)
    empty = run(robot, postures[:3], tool, bias, errors[1], sign, 100.0)
    box = bound_by_wrench(robot, sensor, SETTINGS, loaded, empty)
    assert np.all((box.lower <= payload[:4]) & (payload[:4] <= box.upper))
    assert box.width[0] < 0.35 and np.all(box.width[1:] < 0.17)  # of 2.5 kg and 0.3 kg m and more
    known = with_wrench(robot, box).payload_prior
    assert known.box.is_subset_of(robot.payload_prior.box) and "wrist sensor" in known.name
    assert np.all((known.box.lower - 1e-9 <= payload) & (payload <= known.box.upper + 1e-9))


def test_gears_that_deflect_and_a_gripper_that_moves_are_counted(robot):
    """Encoders of motors see the posture before the gears, and an open gripper has its CoM elsewhere."""
    elastic = load_robot("kinova_gen3_2f85:elastic")
    shape, sensor = robot.payload_prior.shape, WristSensor(FRAME, 0.05, 0.005, 0.0)
    payload, tool = (
        from_com_form(1.5, shape.com.upper, 0.003 * np.eye(3)),
        from_com_form(0.9, -0.1 * np.eye(3)[2], np.eye(3) * 1e-3),
    )
    states = [elastic.gripper_state(name).change for name in elastic.gripper_states]
    moved = np.zeros(10)
    moved[1:4] = states[0].upper[1:4] - states[-1].lower[1:4]
    links = elastic.home + np.random.default_rng(9).uniform(-0.8, 0.8, (3, elastic.n))
    torque = ArmDynamics(elastic, elastic.theta_nominal, payload).gravity
    loaded = run(elastic, links, tool + moved + payload, np.ones(6), np.zeros((3, 6)))
    blocks = [
        dataclasses.replace(block, tau=block.tau + torque(q), q=block.q + elastic.elasticity.deflection(torque(q)))
        for block, q in zip(loaded[0], links, strict=True)
    ]
    loaded = blocks, loaded[1]
    empty = run(elastic, links, tool, np.ones(6), np.zeros((3, 6)), begin=100.0)
    box = bound_by_wrench(elastic, sensor, SETTINGS, loaded, empty)
    assert np.all((box.lower <= payload[:4]) & (payload[:4] <= box.upper))


def test_wrenches_of_the_first_moments_of_a_rest_may_hold_its_last_acceleration(robot):
    """An arm that creeps to a stop, and a sensor that is recorded for 50 ms only; the wrench by Pinocchio's motions."""
    payload, bias = from_com_form(1.5, robot.payload_prior.shape.com.center, 0.003 * np.eye(3)), np.ones(6)
    rng, tau, seconds, times = np.random.default_rng(4), 0.01, np.arange(150) / RATE, np.arange(11) / 200.0
    model, data = robot.pin_model, robot.pin_model.createData()
    to_sensor = pin.SE3(*frame_placement(robot, FRAME)).inverse()
    blocks, stamps, rows = [], [], []
    for k in range(4):
        q, speed = robot.home + rng.uniform(-0.8, 0.8, robot.n), 0.01 * rng.choice((-1.0, 1.0), robot.n)
        v = speed * np.exp(-seconds[:, None] / tau)
        own = np.round(1e9 * (100.0 + 10.0 * k + seconds)).astype(np.int64)
        moved = q + speed * tau * (1.0 - np.exp(-seconds[:, None] / tau))
        blocks.append(SampleBlock(own, 1000 * k + np.arange(150), moved, v, np.zeros_like(v)))
        for time in times:
            fade = np.exp(-time / tau)
            pin.forwardKinematics(model, data, q + speed * tau * (1.0 - fade), speed * fade, -speed / tau * fade)
            gravity = pin.Motion(data.oMi[robot.n].rotation.T @ robot.gravity, np.zeros(3))
            body, motion = pin.Inertia.FromDynamicParameters(payload), data.v[robot.n]
            rows.append((to_sensor * -(body * (data.a[robot.n] - gravity) + motion.cross(body * motion))).vector + bias)
            stamps.append(own[0] + round(1e9 * time))
    wrenches = Wrenches(np.array(stamps), np.array(rows))
    box = bound_by_wrench(robot, WristSensor(FRAME, 0.0, 0.0, 0.0), SETTINGS, (blocks, wrenches))
    assert np.all((box.lower <= payload[:4]) & (payload[:4] <= box.upper))
    single = dataclasses.replace(wrenches, stamps=wrenches.stamps[:1], values=wrenches.values[:1])
    with pytest.raises(SysidError, match="does not rest while there are wrenches"):
        bound_by_wrench(robot, WristSensor(FRAME, 0.0, 0.0, 0.0), SETTINGS, (blocks, single))


@pytest.mark.parametrize("gain", [-0.05, 0.05])
def test_gains_of_a_sensor_that_was_zeroed_with_its_load_are_covered(gain, robot):
    payload = from_com_form(1.5, robot.payload_prior.shape.com.center, 0.003 * np.eye(3))
    rng = np.random.default_rng(5)
    postures, gains = robot.home + rng.uniform(-0.8, 0.8, (4, robot.n)), 1.0 + gain * rng.choice((-1.0, 1.0), 6)
    none = np.zeros((4, 6))
    blocks, wrenches = run(robot, postures, payload, -weight(robot, postures[0], payload), none)
    wrenches = dataclasses.replace(wrenches, values=gains * wrenches.values)
    box = bound_by_wrench(robot, WristSensor(FRAME, 0.0, 0.0, abs(gain)), SETTINGS, (blocks, wrenches))
    assert np.all((box.lower <= payload[:4]) & (payload[:4] <= box.upper))


def test_a_prior_without_a_shape_is_narrowed_and_its_nominal_payload_goes_along(robot):
    payload = from_com_form(2.0, robot.payload_prior.shape.com.center, 0.003 * np.eye(3))
    plain = dataclasses.replace(robot, payload_prior=dataclasses.replace(robot.payload_prior, shape=None))
    postures = robot.home + np.random.default_rng(7).uniform(-0.8, 0.8, (3, robot.n))
    loaded = run(robot, postures, payload, np.ones(6), np.zeros((3, 6)))
    known = with_wrench(plain, bound_by_wrench(plain, WristSensor(FRAME, 0.1, 0.01), SETTINGS, loaded)).payload_prior
    assert known.box.contains(payload) and known.box.contains(known.nominal)
    whole = dataclasses.replace(robot, payload_prior=robot.prior("safe_id_table_1"))
    with pytest.raises(SysidError, match="part of the end effector is in front of the sensor"):
        bound_by_wrench(whole, WristSensor(FRAME, 0.1, 0.01), SETTINGS, loaded)


def test_without_a_tool_the_payload_alone_is_measured(robot):
    payload = from_com_form(1.0, robot.payload_prior.shape.com.center, 0.003 * np.eye(3))
    postures = robot.home + np.random.default_rng(7).uniform(-0.8, 0.8, (3, robot.n))
    loaded = run(robot, postures, payload, np.ones(6), np.zeros((3, 6)))
    box = bound_by_wrench(robot, WristSensor(FRAME, 0.1, 0.01, 0.0), SETTINGS, loaded)
    assert np.all((box.lower <= payload[:4]) & (payload[:4] <= box.upper)) and box.width[0] < 0.2


def test_wrenches_that_fit_no_payload_are_refused_with_what_to_look_at(robot):
    payload = from_com_form(1.0, robot.payload_prior.shape.com.center, 0.003 * np.eye(3))
    postures = robot.home + np.random.default_rng(8).uniform(-0.8, 0.8, (3, robot.n))
    loaded = run(robot, postures, payload, np.zeros(6), 5.0 * np.eye(3, 6))
    with pytest.raises(SysidError, match="is the frame 'end_effector_link' the sensor's"):
        bound_by_wrench(robot, WristSensor(FRAME, 0.1, 0.01, 0.0), SETTINGS, loaded)
    with pytest.raises(ModelError, match="unknown"):
        bound_by_wrench(robot, WristSensor("ft", 0.1, 0.01), SETTINGS, loaded)
    late = loaded[0], dataclasses.replace(loaded[1], stamps=loaded[1].stamps + 10**12)
    with pytest.raises(SysidError, match="does not rest while there are wrenches"):
        bound_by_wrench(robot, WristSensor(FRAME, 0.1, 0.01), SETTINGS, late)
