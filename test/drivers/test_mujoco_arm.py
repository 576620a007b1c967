from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook
from true_arm import true_model

from sysid_ros.core.common.errors import NotPhysicallyConsistent, ParameterOutOfRange
from sysid_ros.core.model.robot import EffortMeaning, tool_transform
from sysid_ros.drivers.arm import ArmError, ArmLost, InjectedFaults
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.mujoco.simulation import load_payload

IDEAL = MujocoSettings(noise=Noise.NONE)


def connected(robot, **options):
    arm = MujocoArm(robot, **{"payload": robot.payload_prior.nominal, "settings": IDEAL, **options})
    arm.connect()
    return arm


def swing(arm, cycles, amplitude=3.0):
    """Moves the arm about; states in front of each command, and the commands."""
    states, commands = [], []
    hold = None
    for k in range(cycles):
        states.append(arm.read())
        hold = np.nan_to_num(states[0].tau) if hold is None else hold
        commands.append(hold + amplitude * np.sin(0.02 * k + np.arange(7)) - 5.0 * states[-1].v)
        arm.command(commands[-1])
    return states, commands


def test_it_is_handed_over_at_rest_and_stays(robot):
    arm = connected(robot)
    torque = arm.read().tau
    for _ in range(500):
        arm.command(torque)
        arm.read()
    np.testing.assert_allclose(arm.truth().q, robot.home, atol=1e-6)


def test_the_effort_of_a_motor_side_sensor_is_the_torque_held_since_the_sample_before(robot):
    states, commands = swing(connected(robot), 50)
    for state, command in zip(states[1:], commands[:-1], strict=True):
        np.testing.assert_array_equal(state.tau, np.clip(command, -robot.limits.tau_max, robot.limits.tau_max))
    assert [s.stamp_ns for s in states] == [k * 1_000_000 for k in range(50)]


def link_side(robot, is_held):
    sensors = replace(robot.sensors, effort_meaning=EffortMeaning.LINK_SIDE, effort_is_held=is_held)
    return connected(replace(robot, sensors=sensors))


def loaded_model(robot):
    model = true_model(robot, payload=robot.payload_prior.nominal)
    return model, model.createData()


def test_the_mean_effort_of_a_link_side_sensor_leaves_friction_and_armature_out(robot):
    arm = link_side(robot, is_held=True)
    states, commands = swing(arm, 400)
    q, v, tau = (np.array([getattr(s, name) for s in states]) for name in ("q", "v", "tau"))
    coulomb, viscous, armature, offset = robot.friction(robot.theta_nominal).T
    slides = np.sign(v[1:]) * (np.sign(v[1:]) == np.sign(v[:-1])) * (np.abs(v[1:]) > 0.02)
    acceleration, speed = np.diff(v, axis=0) / arm.period, np.diff(q, axis=0) / arm.period
    expected = np.array(commands)[:-1] - armature * acceleration - viscous * speed - coulomb * slides - offset
    is_sliding = (slides != 0.0).all(axis=1)
    assert is_sliding.sum() > 50
    np.testing.assert_allclose(tau[1:][is_sliding], expected[is_sliding], atol=1e-4)


def test_the_effort_of_a_gear_side_sensor_leaves_the_rotor_out_alone(robot):
    sensors = replace(robot.sensors, effort_meaning=EffortMeaning.GEAR_SIDE)
    arm = connected(replace(robot, sensors=sensors))
    states, commands = swing(arm, 400)
    v, tau = (np.array([getattr(s, name) for s in states]) for name in ("v", "tau"))
    armature = robot.friction(robot.theta_nominal)[:, 2]
    expected = np.array(commands)[:-1] - armature * np.diff(v, axis=0) / arm.period
    np.testing.assert_allclose(tau[1:], expected, atol=1e-9)
    assert np.abs(armature * np.diff(v, axis=0) / arm.period).max() > 0.1


def test_the_effort_of_a_link_side_sensor_at_the_stamp(robot):
    arm = link_side(robot, is_held=False)
    states, commands = swing(arm, 400)
    model, data = loaded_model(robot)
    coulomb, viscous, armature, offset = robot.friction(robot.theta_nominal).T
    checked = 0
    for state, held in zip(states[1:], commands[:-1], strict=True):
        if np.abs(state.v).min() > 0.02:
            inertia = pin.crba(model, data, state.q)
            inertia = np.triu(inertia) + np.triu(inertia, 1).T
            bias = pin.nonLinearEffects(model, data, state.q, state.v)
            friction = coulomb * np.sign(state.v) + viscous * state.v + offset
            a = np.linalg.solve(inertia + np.diag(armature), held - bias - friction)
            np.testing.assert_allclose(state.tau, inertia @ a + bias, atol=1e-7)
            checked += 1
    assert checked > 50


def test_link_side_effort_is_right_through_a_reversal(robot):
    """The mean over many samples equals that of the rigid-body torque, whatever friction did."""
    arm = link_side(robot, is_held=True)
    states, _ = swing(arm, 600)
    v = np.array([s.v for s in states])
    assert (np.abs(np.diff(np.sign(v), axis=0)) > 1).any(axis=0).all()
    model, data = loaded_model(robot)

    def momentum(q, v):
        return pin.rnea(model, data, q, np.zeros(7), v) - pin.computeGeneralizedGravity(model, data, q)

    def force(q, v):
        gravity = pin.computeGeneralizedGravity(model, data, q)
        return pin.computeCoriolisMatrix(model, data, q, v).T @ v - gravity

    forces = np.array([force(s.q, s.v) for s in states])
    impulse = arm.period * (forces[1:] + forces[:-1]).sum(axis=0) / 2
    change = momentum(states[-1].q, states[-1].v) - momentum(states[0].q, states[0].v)
    measured = arm.period * np.array([s.tau for s in states[1:]]).sum(axis=0)
    np.testing.assert_allclose(measured, change - impulse, atol=1e-9)


def test_torque_is_clipped_and_must_be_finite(robot):
    arm = connected(robot)
    arm.read()
    arm.command(np.full(7, 1e3))
    np.testing.assert_array_equal(arm.read().tau, robot.limits.tau_max)
    with pytest.raises(ArmError, match="joint_3 is nan"):
        arm.command(np.array([0, 0, np.nan, 0, 0, 0, 0]))


def test_brakes_stop_and_hold_a_moving_arm(robot):
    arm = connected(robot)
    swing(arm, 100, amplitude=10.0)
    assert np.abs(arm.truth().v).max() > 0.05
    arm.stop("test")
    for _ in range(200):
        arm.read()
    assert np.abs(arm.truth().v).max() < 1e-3
    before = arm.truth().q
    for _ in range(500):
        arm.read()
    np.testing.assert_allclose(arm.truth().q, before, atol=1e-4)
    with pytest.raises(ArmError, match="needs a connected arm"):
        arm.command(np.zeros(7))
    arm.connect()
    arm.command(arm.read().tau)


def test_calls_without_a_connection_are_refused(robot):
    arm = MujocoArm(robot)
    with pytest.raises(ArmError, match="call connect"):
        arm.read()
    arm.connect()
    with pytest.raises(ArmError, match="clock"):
        arm.start_clock(5)
    arm.close()
    arm.close()
    arm.start_clock(5_000_000)
    arm.connect()
    assert abs(arm.read().stamp_ns - 5_000_000) <= 1e9 * robot.sensors.stamp_jitter


def test_payload_can_be_attached_changed_and_detached(robot):
    arm = connected(robot, payload=None)
    torque = arm.read().tau
    payload = robot.payload_prior.nominal
    for attached in (payload, 1.5 * payload, None):
        state = arm.truth()
        arm.set_payload(attached)
        np.testing.assert_array_equal(arm.truth().q, state.q)
        np.testing.assert_array_equal(arm.truth().v, state.v)
        assert (arm.truth().payload is None) == (attached is None)
    arm.set_payload(payload)
    for _ in range(200):
        arm.command(torque)
        arm.read()
    assert np.abs(arm.truth().q - robot.home).max() > 0.02  # the payload is there: it pulls the arm down
    impossible = payload.copy()
    impossible[0] = -5.0
    with pytest.raises(NotPhysicallyConsistent):
        arm.set_payload(impossible)
    np.testing.assert_array_equal(arm.truth().payload, payload)


@pytest.mark.parametrize(
    ("text", "place"), [("1.5 at 0.01 -0.02 0.1", [0.01, -0.02, 0.1]), ("1.5", [0.004, -0.006, 0.141])]
)
def test_a_weight_hangs_where_it_is_said_to(robot, text, place):
    """Where it is stated, as a calibration does, or in the place of the first payload of the file."""
    mass, *first_moment = load_payload(robot, text)[:4]
    rotation, origin = tool_transform(robot)
    assert mass == pytest.approx(1.5)
    np.testing.assert_allclose(rotation.T @ (np.array(first_moment) / mass - origin), place, atol=1e-12)


def test_a_mass_is_one_that_the_payload_prior_allows():
    """Unless it says where it hangs, or no such payload of the prior has this mass."""
    small, wide = load_textbook("iiwa7:compact_tool"), load_textbook("iiwa7")
    usual = load_payload(wide, "1.5")
    assert wide.payload_prior.contains(usual) and not small.payload_prior.contains(usual)
    chosen = load_payload(small, "1.5")
    assert chosen[0] == pytest.approx(1.5) and small.payload_prior.contains(chosen)
    np.testing.assert_array_equal(load_payload(small, "1.5 at 0 0 0.14"), load_payload(wide, "1.5 at 0 0 0.14"))
    np.testing.assert_array_equal(load_payload(small, "5"), load_payload(wide, "5"))


@pytest.mark.parametrize("text", ["1.5 at 0.1", "1.5 at 0 0 nan", "-1 at 0 0 0.1", "a at 0 0 0", "-1"])
def test_a_payload_that_is_neither_a_name_nor_a_mass_is_refused(robot, text):
    with pytest.raises(ParameterOutOfRange, match="a mass and its CoM in the tool frame"):
        load_payload(robot, text)


def test_dropped_cycles_repeat_the_last_state(robot):
    arm = connected(robot)
    states, _ = swing(arm, 20)
    arm.inject(InjectedFaults(drop_cycles=2))
    dropped = [arm.read(), arm.read()]
    assert [s.ok for s in dropped] == [False, False]
    assert all(s.stamp_ns == states[-1].stamp_ns for s in dropped)
    following = arm.read()
    assert following.ok and following.stamp_ns == states[-1].stamp_ns + 3_000_000


def test_random_drops_have_their_probability(robot):
    arm = connected(robot)
    arm.read()
    arm.inject(InjectedFaults(drop_probability=0.2))
    ok = [arm.read().ok for _ in range(2000)]
    assert 0.15 < 1.0 - np.mean(ok) < 0.25


def test_stuck_encoder_and_values_that_are_not_numbers(robot):
    arm = connected(robot)
    swing(arm, 50)
    frozen = arm.read().q[2]
    arm.inject(InjectedFaults(stuck_encoders=("joint_3",), nan_torques=("joint_1",), nan_positions=("joint_5",)))
    states, _ = swing(arm, 50)
    assert all(s.q[2] == frozen and s.v[2] == 0.0 for s in states)
    assert all(np.isnan(s.tau[0]) and np.isnan(s.q[4]) for s in states)
    arm.inject(InjectedFaults())
    state = arm.read()
    assert np.isfinite(state.q).all() and np.isfinite(state.tau).all() and state.q[2] != frozen


def test_delayed_commands_arrive_late(robot):
    arm = connected(robot)
    first = arm.read().tau
    arm.inject(InjectedFaults(command_delay=3))
    efforts = []
    for k in range(8):
        arm.command(first + k + 1)
        efforts.append(arm.read().tau[6] - first[6])
    np.testing.assert_allclose(efforts, [0, 0, 0, 1, 2, 3, 4, 5], atol=1e-12)


def test_power_loss_loses_the_arm_until_it_is_connected_again(robot):
    arm = connected(robot)
    swing(arm, 100, amplitude=10.0)
    arm.inject(InjectedFaults(power_loss=True))
    for _ in range(300):
        with pytest.raises(ArmLost, match="power is off"):
            arm.read()
    assert np.abs(arm.truth().v).max() < 1e-3
    arm.connect()
    assert arm.read().ok
