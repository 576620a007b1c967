"""An arm under ros2_control in the torque loop, in lock-step: taking over, commands, every fault, letting go."""

from dataclasses import replace

import numpy as np
import pytest
from arm_double import PlantLink, connection, make_arm, make_loop, run, speed

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.drivers.arm import ArmError, ArmLost
from sysid_ros.drivers.loop_types import LoopCode, LoopMode
from sysid_ros.drivers.modes import Noise, TorqueCommand
from sysid_ros.drivers.ros2_control.arm import Ros2ControlArm
from sysid_ros.drivers.ros2_control.settings import Interface, Ros2ControlSettings
from sysid_ros.drivers.ros2_control.states import ControllerInfo
from sysid_ros.drivers.takeover import TakeoverRefused
from sysid_ros.emulators.ros2_control.controllers import BroadcastFaults


def link_to(robot, **changes):
    return PlantLink(robot, measured_sign=robot.sensors.effort_sign, **changes)


def connected(robot, **changes):
    """A link, and an arm on it that has been taken over."""
    link = link_to(robot, **changes)
    arm = make_arm(robot, link, torque_command=changes.get("torque_command", TorqueCommand.FULL))
    arm.connect()
    return link, arm


def in_loop(robot, **changes):
    """A link, and a loop that has taken its arm over."""
    link = link_to(robot, **changes)
    loop = make_loop(robot, link)
    loop.connect()
    return link, loop


def read(arm, count):
    for _ in range(count):
        arm.read()


def fail_to_follow(loop, cycles=500):
    for _ in range(cycles):
        loop.step()
        if loop.is_handed_back:
            return
    raise AssertionError(f"not given up: {loop.status().reason}")


@pytest.mark.parametrize("torque_command", [TorqueCommand.FULL, TorqueCommand.OVERLAY_GRAVITY, TorqueCommand.OVERLAY])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_the_arm_is_held_whatever_the_order_and_what_a_command_is(robot, torque_command, is_mixed):
    names = robot.joint_names
    mixed = {"order": ("finger", *names[::-1], "lid"), "joints": (*names[3:], *names[:3])} if is_mixed else {}
    link = link_to(robot, payload="dumbbell_4lb", torque_command=torque_command, **mixed)
    loop = make_loop(robot, link, torque_command=torque_command)
    loop.connect()
    samples = run(loop, 0.4)
    assert loop.mode is LoopMode.HOLD, loop.status().reason
    assert np.abs(link.hardware.arm.q - robot.home).max() < 0.02 and speed(link) < 0.1
    assert [sample.stamp_ns for sample in samples] == sorted({sample.stamp_ns for sample in samples})
    np.testing.assert_allclose(samples[-1].q, link.hardware.arm.q, atol=1e-3)
    loop.release("done")
    assert link.is_closed


def test_a_command_reaches_the_joint_it_is_for(robot):
    """Also under overlay: what is sent is the whole torque less what the arm adds."""
    names = robot.joint_names
    link, arm = connected(robot, joints=names[::-1], torque_command=TorqueCommand.OVERLAY)
    state = arm.read()
    tau = np.arange(1.0, 8.0)
    arm.command(tau)
    added = ArmDynamics(robot, robot.theta_nominal, None).torque(state.q, state.v, np.zeros(7))
    np.testing.assert_allclose(link.sent[-1][0][::-1], tau - added, atol=1e-9)
    np.testing.assert_allclose(link.controller.command, tau - added, atol=1e-9)


def test_an_unset_torque_command_and_other_arms_are_refused_at_once(robot):
    with pytest.raises(ParameterOutOfRange, match="'?torque_command'? 'unset': expected full .* overlay_gravity"):
        Ros2ControlArm(robot, Ros2ControlSettings(), lambda: None)
    scara = replace(robot, joint_names=robot.joint_names[:6])
    with pytest.raises(ParameterOutOfRange, match="an LBR for lbr_fri_idl"):
        Ros2ControlArm(scara, connection(interface=Interface.LBR), lambda: None)


def refusal(robot, link, **changes):
    """Why the arm is not taken over; nothing was sent, and it is where it was."""
    with pytest.raises(ArmError) as caught:
        make_arm(robot, link, **changes).connect()
    assert link.is_closed
    return str(caught.value)


def faulty(**faults):
    return lambda link: setattr(link.broadcaster, "faults", BroadcastFaults(**faults))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (faulty(is_silent=True), "0 of 50 states came, then none for 0.3 s (no publisher on /joint_states)"),
        (faulty(renamed=("joint_2",)), "joints joint_2 are missing; it names joint_1, joint_2_renamed"),
        (faulty(left_out=("effort",)), "effort has 0 entries for 7 joints"),
        (faulty(not_measured=("effort",)), "the effort of joint_1 is not a number; identification needs measured"),
        (faulty(not_measured=("velocity",)), "the velocity of joint_1 is nan; with velocity_source: positions"),
        (faulty(not_measured=("position",)), "the position of joint_1 is nan"),
        (faulty(nan_efforts=("joint_5",)), "the effort of joint_5 is not a number"),
        (faulty(drop_every=4), "of the states are missing"),
        (lambda link: setattr(link, "told", None), "the order of the commands is not known"),
        (lambda link: setattr(link, "told", ControllerInfo(("joint_1",))), "commands are for the joints joint_1;"),
        (lambda link: setattr(link, "command_problem", "no subscriber on /x"), "no subscriber on /x"),
        (lambda link: setattr(link, "command_problem", "/x has another publisher"), "/x has another publisher"),
    ],
)
def test_states_and_controllers_that_do_not_do_are_refused_before_anything_is_sent(robot, change, words):
    link = link_to(robot)
    change(link)
    assert words in refusal(robot, link)
    assert not link.sent


def test_another_rate_sign_or_payload_is_refused_before_anything_is_sent(robot):
    for link, words in (
        (link_to(robot, period=0.002), "comes at 500 Hz, update_rate is 1000 Hz"),
        (PlantLink(robot, measured_sign=-robot.sensors.effort_sign), "check sensors.effort_sign"),
        (link_to(robot, payload="6.0"), "its model allows"),
    ):
        assert words in refusal(robot, link)
        assert not link.sent


def test_torque_limits_that_do_not_hold_the_arm_are_refused_before_anything_is_sent(robot):
    link = link_to(robot, payload="dumbbell_4lb")
    weak = replace(robot, limits=replace(robot.limits, tau_max=robot.limits.tau_continuous / 3.0))
    words = refusal(weak, link)
    assert "joint_2 needs -" in words and "its torque limit is 13.00 Nm" in words and "Raise torque" in words
    assert not link.sent


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"command_sign": -1.0}, "moved by"),
        ({"torque_command": TorqueCommand.OVERLAY}, "does torque_command 'full' match the arm"),
    ],
)
def test_torques_that_act_otherwise_than_set_are_noticed_within_the_allowed_drift(robot, settings, words):
    """In the end nothing is sent: no feedback with a wrong sign, and an overlay of nothing."""
    link = link_to(robot, **settings)
    assert words in refusal(robot, link)
    assert np.abs(link.hardware.arm.q - robot.home).max() < 0.03
    assert link.sent[-1][0] == [0.0] * 7


def test_a_controller_that_takes_no_commands_is_refused(robot):
    link = link_to(robot)
    link.controller.is_dead = True
    assert "joint_7 does not move under" in refusal(robot, link)


def test_an_arm_that_moves_is_refused(robot):
    link = link_to(robot)
    link.motion = type(
        "Moving", (), {"evaluate": lambda self, t: (robot.home + 0.3 * t, 0 * robot.home + 0.3, 0 * robot.home)}
    )()  # noqa: E501
    assert "moves: " in refusal(robot, link)
    assert not link.sent


def test_duplicates_are_left_out_and_gaps_break_the_numbering(robot):
    link, loop = in_loop(robot)
    loop.step()
    link.broadcaster.faults = BroadcastFaults(repeats=True)
    samples = run(loop, 0.1)
    stamps = [sample.stamp_ns for sample in samples]
    assert len(set(stamps)) == len(stamps) and loop.arm.health()["states repeated"] >= 99
    assert set(np.diff([sample.sequence for sample in samples])) == {1}

    link.broadcaster.faults = BroadcastFaults()
    run(loop, 0.01)
    first = loop.step()
    link.update()
    link.update()  # two states are lost without anybody having waited for them
    second = loop.step()
    assert second.ok and second.sequence - first.sequence == 3
    assert second.stamp_ns - first.stamp_ns == 3_000_000
    assert loop.arm.health()["states missing"] == 2


def test_too_many_missing_states_are_a_fault(robot):
    link, arm = connected(robot)
    link.broadcaster.faults = BroadcastFaults(drop_every=10)
    faults = ()
    for _ in range(2000):
        state = arm.read()
        faults = faults or state.faults
        if state.ok:
            arm.command(np.array(link.hardware.arm.dynamics.gravity(link.hardware.arm.q)))
    assert "of the states of the last second are missing" in faults[0]


def test_efforts_that_become_nan_keep_the_arm_held_and_no_motion_may_start(robot):
    link, loop = in_loop(robot)
    link.broadcaster.faults = BroadcastFaults(nan_efforts=("joint_3",))
    loop.step()  # the state that taking over ended with
    samples = run(loop, 0.1)
    assert loop.mode is LoopMode.HOLD and not any(sample.ok for sample in samples)
    assert "no motion may start: the torque of joint_3 is nan" in loop.status().reason
    assert np.abs(link.hardware.arm.q - robot.home).max() < 0.02


@pytest.mark.parametrize("faults", [{"is_silent": True}, {"renamed": ("joint_1",)}, {"not_measured": ("position",)}])
def test_lost_states_end_in_what_has_held_the_arm(robot, faults):
    link, loop = in_loop(robot, payload="dumbbell_4lb")
    run(loop, 0.6)
    before = np.array(link.hardware.arm.q)
    link.broadcaster.faults = BroadcastFaults(**faults)
    fail_to_follow(loop)
    sent = len(link.sent)
    for _ in range(1000):
        loop.step()
    assert len(link.sent) - sent > 300  # it goes on sending
    assert np.abs(link.hardware.arm.q - before).max() < 0.05 and speed(link) < 0.05
    assert loop.status().code in (LoopCode.HARDWARE, LoopCode.INVALID_MEASUREMENT)

    link.broadcaster.faults = BroadcastFaults()
    for _ in range(500):
        loop.step()
    assert speed(link) < 1e-3
    loop.connect()
    run(loop, 0.3)
    assert loop.mode is LoopMode.HOLD


@pytest.mark.parametrize("torque_command", [TorqueCommand.FULL, TorqueCommand.OVERLAY])
def test_lost_in_motion_it_sends_what_balances_the_arm_as_far_as_that_is_known(lbr, torque_command):
    """The model's gravity, or an overlay of nothing, with what was missing of it while the arm rested."""
    link, arm = connected(lbr, torque_command=torque_command)
    tau = lbr.limits.tau_max * 0.02
    for _ in range(60):
        state = arm.read()
        arm.command(link.hardware.arm.dynamics.gravity(state.q) + tau)
    assert speed(link) > 0.05
    link.broadcaster.faults = BroadcastFaults(is_silent=True)
    with pytest.raises(ArmLost, match="no joint states for"):
        read(arm, 100000)
    arm.stop("lost")
    sent = np.array(link.sent[-1][0])
    if torque_command is TorqueCommand.OVERLAY:
        np.testing.assert_allclose(sent, 0.0, atol=0.06)
    else:
        model = ArmDynamics(lbr, lbr.theta_nominal, lbr.payload_prior.nominal).gravity(arm._last.q)
        missing = np.abs(link.hardware.arm.dynamics.gravity(arm._last.q) - model).max()
        assert missing > 5.0  # the prior is wide
        np.testing.assert_allclose(sent, link.hardware.arm.dynamics.gravity(arm._last.q), atol=0.2 * missing)
    with pytest.raises(ArmError, match="needs a connected arm"):
        arm.command(tau)


def test_letting_go_brings_the_arm_to_rest_and_leaves_the_torque_that_holds_it(robot):
    link, arm = connected(robot, payload="dumbbell_4lb")
    gravity = link.hardware.arm.dynamics.gravity
    for _ in range(150):
        state = arm.read()
        arm.command(gravity(state.q) + 0.1 * robot.limits.tau_max)
    assert speed(link) > 0.2
    arm.close()
    assert link.is_closed
    place = np.array(link.hardware.arm.q)
    for _ in range(3000):
        link.next(0.0)
    assert np.abs(link.hardware.arm.q - place).max() < 0.05


def test_an_arm_that_is_held_is_held_while_it_is_taken_over_again_and_after_a_refusal(robot):
    link, arm = connected(robot, payload="dumbbell_4lb", joints=robot.joint_names[::-1])
    gravity = link.hardware.arm.dynamics.gravity
    for _ in range(150):
        state = arm.read()
        arm.command(gravity(state.q) + 0.1 * robot.limits.tau_max)
    arm.stop("enough")
    with pytest.raises(TakeoverRefused, match="moves: "):
        arm.connect()
    assert not link.is_closed
    read(arm, 1000)
    assert speed(link) < 1e-3
    place, sent = np.array(link.hardware.arm.q), len(link.sent)
    link.broadcaster.faults = BroadcastFaults(nan_efforts=("joint_4",))
    with pytest.raises(TakeoverRefused, match="the effort of joint_4"):
        arm.connect()
    assert len(link.sent) - sent >= 50
    link.broadcaster.faults = BroadcastFaults()
    arm.connect()
    assert np.abs(link.hardware.arm.q - place).max() < 0.02


def resting(robot, link):
    """An arm that has been held for a while, and the torque that holds it."""
    arm = make_arm(robot, link)
    arm.connect()
    balance = link.hardware.arm.dynamics.gravity(link.hardware.arm.q) + link.hardware.arm.friction[:, 3]
    for _ in range(300):
        arm.read()
        arm.command(balance)
    return arm, balance


def test_commands_that_were_not_obeyed_are_no_memory_of_what_holds_the_arm(robot):
    link = link_to(robot)
    arm, balance = resting(robot, link)
    place = np.array(link.hardware.arm.q)
    link.controller.is_dead = True  # the last command goes on holding the arm, whatever is sent
    for _ in range(300):
        arm.read()
        arm.command(balance + 0.5 * robot.limits.tau_max)
    link.controller.is_dead = False
    arm.stop("enough")
    read(arm, 3000)
    assert speed(link) < 1e-3
    assert np.abs(link.hardware.arm.q - place).max() < 0.05


def test_an_arm_that_drifted_under_a_dead_controller_is_held_with_what_it_carries(robot):
    link = link_to(robot, payload="dumbbell_4lb")
    arm, balance = resting(robot, link)
    arm.read()
    arm.command(balance + 0.1 * robot.limits.tau_continuous)
    link.controller.is_dead = True
    for _ in range(250):
        arm.read()
        arm.command(balance)
    assert speed(link) > 0.3
    arm.stop("enough")
    place = np.array(link.hardware.arm.q)
    for _ in range(400):
        arm.read()  # still nobody obeys
    link.controller.is_dead = False
    read(arm, 6000)
    assert speed(link) < 1e-3
    assert np.abs(link.hardware.arm.q - place).max() < 0.1


def test_a_hold_pulls_an_arm_that_was_moved_back_slowly(robot):
    link, arm = connected(robot)
    arm.stop("enough")
    link.hardware.arm.place(link.hardware.arm.q + 0.4)
    fastest = 0.0
    for _ in range(3000):
        arm.read()
        fastest = max(fastest, speed(link))
    assert fastest < 1.0
    assert np.abs(link.hardware.arm.q - robot.home).max() < 0.05


def test_a_hold_controller_takes_over_on_stop_and_is_asked_before_the_first_motion(robot):
    link = link_to(robot)
    link.has_hold_controller, link.is_torque = True, False
    arm = make_arm(robot, link)
    arm.connect()
    assert link.switches == [True]
    first = link.sent[0]
    arm.stop("enough")
    assert link.switches == [True, False] and len(first[0]) == 7
    sent = len(link.sent)
    read(arm, 50)
    assert len(link.sent) == sent  # another one holds the arm
    arm.close()


def test_a_switch_that_is_refused_is_told_and_the_driver_goes_on_holding(robot):
    link = link_to(robot)
    link.has_hold_controller, link.is_torque = True, False
    link.switch_problem = "switch_controller did not answer"
    assert "the effort controller cannot be activated: switch_controller did not answer" in refusal(robot, link)

    link = link_to(robot)
    link.has_hold_controller = True
    arm = make_arm(robot, link)
    arm.connect()
    link.switch_problem = "switch_controller did not answer"
    arm.stop("enough")
    sent = len(link.sent)
    read(arm, 50)
    assert len(link.sent) - sent == 50
    assert arm.health()["last problem of handing back"] == "switch_controller did not answer"


def test_a_listener_that_goes_away_is_a_fault(robot):
    link, arm = connected(robot)
    link.command_problem = "no subscriber on /effort_controller/commands"
    faults = ()
    for _ in range(700):
        state = arm.read()
        faults = faults or state.faults
        arm.command(link.hardware.arm.dynamics.gravity(state.q))
    assert faults == ("no subscriber on /effort_controller/commands",)


def test_an_alarm_of_the_arm_ends_commands(robot):
    link, arm = connected(robot)
    messages = link.broadcaster.messages
    link.broadcaster.messages = lambda measured: [
        one._replace(alarm="the FRI session is in MONITORING_READY") for one in messages(measured)
    ]
    arm.read()  # the one that taking over ended with
    with pytest.raises(ArmLost, match="the FRI session is in MONITORING_READY"):
        arm.read()


def test_computed_velocities_are_inexact_after_a_gap_and_the_loop_leaves_them_out(lbr):
    from sysid_ros.drivers.velocity_estimate import VelocitySource

    link = link_to(lbr, noise=Noise.UNIFORM)
    link.broadcaster.faults = BroadcastFaults(not_measured=("velocity",))
    loop = make_loop(lbr, link, velocity=VelocitySource.POSITIONS)
    loop.connect()
    assert all(sample.ok for sample in run(loop, 0.05))
    link.update()
    samples = run(loop, 0.05)
    assert loop.mode is LoopMode.HOLD
    is_ok = [sample.ok for sample in samples]
    assert not is_ok[0] and is_ok[-1] and is_ok == sorted(is_ok)


def test_nothing_works_without_a_connection(robot):
    arm = make_arm(robot, link_to(robot))
    for call in (arm.read, lambda: arm.command(np.zeros(7))):
        with pytest.raises(ArmError, match="needs a connected arm"):
            call()
    arm.stop("never connected")
    arm.close()
    assert arm.health() == {}


def test_a_torque_that_is_not_finite_never_leaves(robot):
    link, arm = connected(robot)
    sent = len(link.sent)
    with pytest.raises(ArmError, match="torque command of joint_2 is nan"):
        arm.command(np.array([0.0, np.nan, 0.0, 0.0, 0.0, 0.0, 0.0]))
    assert len(link.sent) == sent


def test_states_that_are_missing_for_a_moment_only_delay_the_takeover(robot):
    link = link_to(robot)
    link.broadcaster.faults = BroadcastFaults(drop_every=4)
    messages, count = link.broadcaster.messages, 0

    def recover(measured):
        nonlocal count
        count += 1
        if count == 150:
            link.broadcaster.faults = BroadcastFaults()
        return messages(measured)

    link.broadcaster.messages = recover
    make_arm(robot, link).connect()
    assert count > 180


def test_commands_that_leave_later_than_a_period_after_their_state_are_missed_deadlines(robot, monkeypatch):
    link, late, delays = link_to(robot), [0.0], [0.9, 1.1, 0.0, 1.5]
    monkeypatch.setattr(link, "now", lambda: 1e-9 * link.hardware.arm.stamp_ns + late[0])
    loop = make_loop(robot, link)
    loop.connect()
    assert loop.status().missed_deadlines == 0
    compute = loop._controller.compute

    def slowly(*state):
        late[0] += loop.arm.period * (delays.pop() if delays else 0.0)
        return compute(*state)

    loop._controller.compute = slowly
    run(loop, 0.1)
    assert loop.mode is LoopMode.HOLD and loop.status().missed_deadlines == 2
    loop.release("test")
