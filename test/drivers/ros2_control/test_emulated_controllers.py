"""The emulated arm does what broadcaster, forward controller and hardware of ros2_control do."""

import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.arm import ArmState
from sysid_ros.drivers.modes import Noise, TorqueCommand
from sysid_ros.drivers.mujoco.simulation import draw_truth
from sysid_ros.emulators.plant import EmulatedArm, PlantSettings
from sysid_ros.emulators.ros2_control.controllers import (
    Broadcaster,
    BroadcastFaults,
    EmulatedHardware,
    ForwardController,
    HardwareSettings,
    HomeMotion,
)


def measured():
    return ArmState(5, np.arange(7.0), 10 + np.arange(7.0), 100 + np.arange(7.0))


def test_states_come_in_the_broadcasters_order_with_nan_for_what_is_not_measured(robot):
    order = ("finger", *robot.joint_names[::-1])
    broadcaster = Broadcaster(robot, order)
    (message,) = broadcaster.messages(measured())
    assert message.names == order and message.stamp_ns == 5
    assert list(message.position) == [0.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    assert np.isnan(message.effort[0]) and message.effort[1] == 106.0
    broadcaster.faults = BroadcastFaults(not_measured=("velocity",), renamed=("joint_7",), left_out=("effort",))
    (message,) = broadcaster.messages(measured())
    assert np.isnan(message.velocity).all() and len(message.velocity) == 8
    assert len(message.effort) == 0 and message.names[1] == "joint_7_renamed"


def test_messages_can_be_lost_and_come_twice(robot):
    broadcaster = Broadcaster(robot)
    broadcaster.faults = BroadcastFaults(drop_every=3)
    assert [len(broadcaster.messages(measured())) for _ in range(6)] == [1, 1, 0, 1, 1, 0]
    broadcaster.faults = BroadcastFaults(repeats=True)
    assert len(broadcaster.messages(measured())) == 2
    broadcaster.faults = BroadcastFaults(is_silent=True)
    assert broadcaster.messages(measured()) == []


def test_the_forward_controller_keeps_the_last_good_command_for_ever(robot):
    controller = ForwardController(robot, robot.joint_names[::-1])
    assert controller.command is None
    assert controller.take(range(7)) is None
    expected = np.arange(7.0)[::-1]
    for data, words in (
        ([np.nan] * 7, "Non-finite value received. Dropping message"),
        ([1.0] * 6, r"command size (6) does not match number of interfaces (7)"),
        ([np.inf, *[0.0] * 6], "Non-finite"),
    ):
        assert words in controller.take(data)
        np.testing.assert_array_equal(controller.command, expected)
    controller.is_dead = True
    assert controller.take([0.0] * 7) is None and controller.taken == 1
    np.testing.assert_array_equal(controller.command, expected)
    controller.is_dead = False  # started anew
    assert controller.command is None
    assert controller.take(range(7)) is None and controller.taken == 2


def test_orders_that_cannot_be_are_refused(robot):
    with pytest.raises(ParameterOutOfRange, match="elbow"):
        ForwardController(robot, ("elbow",))
    with pytest.raises(ParameterOutOfRange, match="joint_7"):
        Broadcaster(robot, robot.joint_names[:6])
    for bad in ({"period": 0.0015}, {"period": 0.05}, {"torque_command": TorqueCommand.UNSET}):
        with pytest.raises(ParameterOutOfRange):
            HardwareSettings(**bad)
    with pytest.raises(ParameterOutOfRange):
        PlantSettings(measured_sign=0.5)


def hardware(robot, measured_sign=1.0, **changes):
    plant = PlantSettings(Noise.NONE, measured_sign=measured_sign)
    arm = EmulatedArm(robot, draw_truth(robot, "random", 1), None, plant, 1_000_000_000)
    return EmulatedHardware(arm, HardwareSettings(**changes))


def test_hardware_holds_without_commands_and_overlays_what_it_says(robot):
    component = hardware(robot)
    for _ in range(300):
        component.hold()
    np.testing.assert_allclose(component.arm.q, robot.home, atol=1e-3)
    assert component.arm.stamp_ns == 1_300_000_000
    balanced = {}
    for kind in (TorqueCommand.FULL, TorqueCommand.OVERLAY_GRAVITY, TorqueCommand.OVERLAY):
        component = hardware(robot, torque_command=kind)
        for _ in range(200):
            component.apply(np.zeros(7))
        balanced[kind] = np.abs(component.arm.q - robot.home).max() < 0.05  # its own model is not quite the truth
    assert balanced == {TorqueCommand.FULL: False, TorqueCommand.OVERLAY_GRAVITY: True, TorqueCommand.OVERLAY: True}


def test_the_effort_is_the_mean_torque_of_the_motor_since_the_update_before(robot):
    component = hardware(robot, period=0.004, measured_sign=-1.0)
    tau = component.arm.dynamics.gravity(component.arm.q)
    for scale in (1.0, 1.02):
        component.apply(scale * tau)
        np.testing.assert_allclose(component.measure().tau, -scale * tau, atol=1e-9)


def test_the_other_controller_follows_its_motion_within_the_limits(robot):
    component, motion = hardware(robot), HomeMotion(robot, seed=2)
    worst = speed = 0.0
    for k in range(4000):
        reference = motion.evaluate(0.001 * (k + 1))
        component.follow(*reference)
        worst = max(worst, np.abs(component.arm.q - reference[0]).max())
        speed = max(speed, np.abs(component.arm.v / robot.limits.v_max).max())
    assert worst < 0.02 and 0.05 < speed < 0.6


@pytest.mark.parametrize("time", [0.1, 0.7, 1.9, 2.0, 3.3, 11.0])
def test_the_motion_is_the_integral_of_its_derivatives(robot, time):
    motion, h = HomeMotion(robot, seed=3), 1e-5
    (q0, v0, _), (q, v, a), (q1, v1, _) = (motion.evaluate(time + d) for d in (-h, 0.0, h))
    np.testing.assert_allclose((q1 - q0) / (2 * h), v, atol=1e-6)
    np.testing.assert_allclose((v1 - v0) / (2 * h), a, atol=1e-5)


def test_the_motion_stays_within_the_limits_and_begins_at_home_at_rest(robot, lbr):
    for one in (robot, lbr):
        for seed in range(5):
            motion = HomeMotion(one, seed=seed, start=1.0)
            q, v, a = motion.evaluate(1.0)
            np.testing.assert_allclose(q, one.home)
            assert np.abs(v).max() == np.abs(a).max() == 0.0
            states = [motion.evaluate(t) for t in np.arange(0.0, 40.0, 0.02)]
            q, v, a = (np.array([state[k] for state in states]) for k in range(3))
            assert np.all((q >= one.limits.q_lower) & (q <= one.limits.q_upper))
            assert np.all(np.abs(v) <= one.limits.v_max) and np.all(np.abs(a) <= 3.0 * one.limits.a_max)
