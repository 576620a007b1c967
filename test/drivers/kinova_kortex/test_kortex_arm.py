"""The Gen3 as an arm of the loop: taking over, torques and signs, faults, restarts; over real sockets."""

import dataclasses
import time
from types import SimpleNamespace

import numpy as np
import pytest
from driver_doubles import started
from emulated_campaign import require_forgives_itself
from kortex_bench import PERIOD, ROBOT, RunningEmulator, make_arm, make_base, make_loop, run
from textbook import load_textbook

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.calibration import CalibrationRecord
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.kinova_kortex.arm import KortexArm
from sysid_ros.drivers.kinova_kortex.enums import (
    ControlMode,
    Function,
    KortexConnectionLost,
    KortexServerError,
    Safety,
    ServoingMode,
    SubError,
)
from sysid_ros.drivers.kinova_kortex.frame import decode_frame
from sysid_ros.drivers.kinova_kortex.messages import Unwrapper, decode_command, to_wire, wrap_degrees
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings, VelocitySource
from sysid_ros.drivers.loop_types import LoopCode, LoopMode
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import draw_truth
from sysid_ros.drivers.takeover import TakeoverRefused
from sysid_ros.emulators.kortex.base import refusal
from sysid_ros.emulators.plant import PlantSettings
from sysid_ros.ros.other_nodes import wait_until

QUIET = PlantSettings(noise=Noise.NONE)


def travelled(base, robot=ROBOT):
    return np.abs(base.arm.q - robot.home).max()


def record(base):
    """Everything the base is asked from now on, as (transport, frame)."""
    asked, answer = [], base.answer

    def listen(transport, client, data):
        asked.append((transport, decode_frame(data)))
        return answer(transport, client, data)

    base.answer = listen
    return asked


# Taking over and handing back


@pytest.mark.parametrize("model", ["kinova_gen3", "kinova_gen3_2f85"])
def test_takes_over_holds_and_hands_back(model):
    robot = load_textbook(model)
    base = make_base(payload="1.0", robot=robot)
    with RunningEmulator(base) as emulator:
        loop = make_loop(make_arm(emulator, robot, probe_torque=0.25))
        loop.connect()
        samples = run(loop, 0.5)
        health = loop.arm.health()
        assert loop.mode is LoopMode.HOLD and len(samples) == 500 and all(s.ok for s in samples)
        loop.release("test")
        assert base.reports == ["low-level servoing", "the base holds the arm: asked for"]
        assert len(base.sessions) == 0 and set(base.actuators.modes) == {ControlMode.POSITION}
    assert travelled(base, robot) < 0.01 and not base.actuators.rejected
    assert health["replies missing"] == health["datagrams malformed"] == health["readings not plausible"] == 0
    assert np.unique(np.diff([s.stamp_ns for s in samples])).tolist() == [1_000_000]
    assert loop.arm.health()["last problem of handing back"] == "none"


def test_start_and_stop_sequences_are_kinovas():
    base = make_base(payload="1.0", device_ids=(1, 2, 3, 4, 5, 6, 7))
    asked = record(base)
    with RunningEmulator(base, tcp_delay=0.02) as emulator:
        loop = started(make_loop(make_arm(emulator)), 0.1)
        loop.release("test")
    calls = [frame for transport, frame in asked if transport == "tcp" and frame.function != Function.KEEP_ALIVE]
    names = [(Function(frame.function).name, frame.payload[-1:], frame.device) for frame in calls]
    low, single, torque, position = b"\x03", b"\x02", b"\x03", b"\x01"
    assert [n[0] for n in names[:4]] == [
        "CREATE_SESSION",
        "GET_SERIAL_NUMBER",
        "GET_ACTUATOR_COUNT",
        "READ_ALL_DEVICES",
    ]
    assert names[4:] == [
        ("CLEAR_FAULTS", b"", 0),
        ("SET_SERVOING_MODE", single, 0),
        ("GET_ARM_STATE", b"", 0),
        ("SET_SERVOING_MODE", low, 0),
        *(("SET_CONTROL_MODE", torque, device) for device in range(1, 8)),
        *(("SET_CONTROL_MODE", position, device) for device in range(1, 8)),
        ("SET_SERVOING_MODE", single, 0),
        ("CLOSE_SESSION", b"", 0),
    ]
    # Between two calls that take 20 ms each the cyclic service never pauses.
    first = next(k for k, (_, frame) in enumerate(asked) if frame.function == Function.SET_CONTROL_MODE)
    last = max(k for k, (_, frame) in enumerate(asked) if frame.function == Function.SET_CONTROL_MODE)
    between, run_length = [], 0
    for transport, frame in asked[first : last + 1]:
        if transport == "tcp" and frame.function == Function.SET_CONTROL_MODE:
            between.append(run_length)
            run_length = 0
        run_length += transport == "udp"
    assert min(between[1:]) >= 10
    # The first command follows low-level servoing; before, feedback is only asked for.
    functions = [frame.function for transport, frame in asked if transport == "udp"]
    assert functions.index(Function.REFRESH) > functions.index(Function.REFRESH_FEEDBACK)
    assert functions[-1] == Function.CLOSE_SESSION


def test_positions_follow_the_measurement_and_ids_count():
    base = make_base(plant=QUIET)
    asked = record(base)
    with RunningEmulator(base) as emulator:
        arm = make_arm(emulator)
        arm.connect()
        arm._exchange._frame = base.actuators.frame = 65530  # the counter wraps soon
        asked.clear()
        state = arm.read()
        for _ in range(10):
            arm.command(state.tau)
            state = arm.read()
        commands = [decode_command(f.payload, 7) for _, f in asked if f.function == Function.REFRESH]
        arm.close()
    commands = commands[:10]
    assert [c.frame for c in commands] == [65531, 65532, 65533, 65534, 65535, 0, 1, 2, 3, 4]
    assert all(c.flags == 1 for c in commands)
    for command in commands:
        np.testing.assert_allclose(wrap_degrees(command.q - to_wire(base.arm.q)), np.zeros(7), atol=0.3)
    assert not base.actuators.rejected and not base.actuators.warnings.any()


def test_the_torque_commanded_is_the_torque_that_acts_one_period_later():
    base = make_base(plant=QUIET)
    acted, advance = [], base.actuators.move
    base.actuators.move = lambda q, is_torque, tau: (acted.append(np.array(tau)), advance(q, is_torque, tau))[1]
    with RunningEmulator(base) as emulator:
        arm = make_arm(emulator)
        arm.connect()
        state = arm.read()
        sent, felt = [], []
        for k in range(50):
            sent.append(state.tau + 0.1 * np.sin(0.3 * k + np.arange(7)))
            arm.command(sent[-1])
            state = arm.read()
            felt.append(state.tau)
        # The base has answered the last request before it acts on it.
        assert wait_until(lambda: len(acted) and np.allclose(acted[-1], sent[-1], atol=1e-5), 60.0)
        latest = acted[-50:]
        arm.close()
    # Every request lets one period pass, no more and no less.
    np.testing.assert_allclose(latest, sent, atol=1e-5)
    # The reply to a request shows what acted until it came.
    np.testing.assert_allclose(felt[1:], sent[:-1], atol=1e-5)


def test_the_estimator_gets_the_joint_torque():
    base = make_base(payload="1.0", plant=QUIET)
    with RunningEmulator(base) as emulator:
        loop = make_loop(make_arm(emulator))
        loop.connect()
        samples = run(loop, 0.4)[-100:]
        loop.release("test")
    truth = ArmDynamics(ROBOT, base.arm.theta, base.arm.payload).gravity(base.arm.q)
    friction = ROBOT.friction(base.arm.theta)[:, 0] + np.abs(ROBOT.friction(base.arm.theta)[:, 3])
    tau = np.mean([s.tau for s in samples], axis=0)
    assert (np.abs(tau - truth) < friction + 0.05).all() and np.abs(tau).max() > 10.0


# Refusals before anything moves


def of_calibrated(serial):
    record = CalibrationRecord(serial=serial, date="2026-11-28")
    return dataclasses.replace(ROBOT, calibration=SimpleNamespace(record=record))


@pytest.mark.parametrize(
    ("stated", "calibrated", "words"),
    [("K8", "", "its arm is K7, but K8 was stated.*serial_number:=K7"), ("", "K8", "'K7': expected K8, the arm that")],
)
def test_another_arm_than_stated_or_calibrated_is_refused(stated, calibrated, words):
    with RunningEmulator(make_base(serial_number="K7")) as emulator:
        arm = make_arm(emulator, of_calibrated(calibrated) if calibrated else ROBOT)
        arm.serial_number = stated
        with pytest.raises(SysidError, match=words):
            arm.connect()
    assert not emulator.base.reports and not len(emulator.base.sessions)


@pytest.mark.parametrize(("told", "known"), [("K7", "K7"), ("", "K9")])
def test_the_base_tells_which_arm_it_is_where_it_can(told, known):
    """Without a number, or with an old base that has no such function, what was stated counts."""
    base = make_base(serial_number=told)
    with RunningEmulator(base) as emulator:
        arm = make_arm(emulator, of_calibrated(known))
        arm.serial_number = known
        arm.connect()
        assert arm.serial_number == known
        arm.close()
        call = base._call

        def refuse(function, frame):
            if function is Function.GET_SERIAL_NUMBER:
                raise refusal(SubError.UNSUPPORTED_METHOD)
            return call(function, frame)

        base._call = refuse
        arm.connect()
        assert arm.serial_number == known
        arm.close()


REFUSED = {
    "torques of the wrong sign": ({"plant": PlantSettings(measured_sign=1.0)}, "opposite sign.*effort_sign"),
    "a payload beyond the prior": ({"payload": "6.0"}, "its model allows"),
    "six joints": ({"joint_count": 6}, "has 6 actuators.*kinova_gen3_2f85 has 7"),
    "eight joints": ({"joint_count": 8}, "has 8 actuators.*kinova_gen3_2f85 has 7"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_before_torque(name):
    changes, words = REFUSED[name]
    base = make_base(**changes)
    start = base.arm.q
    with RunningEmulator(base) as emulator, pytest.raises(TakeoverRefused, match=words):
        make_arm(emulator).connect()
    assert np.abs(base.arm.q - start).max() < 1e-3 and not base.reports


def test_feedback_of_another_number_of_joints_is_refused():
    base = make_base()
    feedback = base._feedback
    base._feedback = lambda frame: cut(feedback(frame), 6)
    with RunningEmulator(base) as emulator:
        with pytest.raises(TakeoverRefused, match="no usable feedback.*feedback of 6 actuators, not 7"):
            make_arm(emulator, connect_timeout=1.5).connect()


def cut(feedback, n):
    return feedback._replace(q=feedback.q[:n], v=feedback.v[:n], tau=feedback.tau[:n])


def test_commands_of_the_wrong_sign_are_refused_at_once():
    base = make_base(plant=PlantSettings(noise=Noise.NONE, command_sign=-1.0))
    with RunningEmulator(base) as emulator:
        with pytest.raises(TakeoverRefused, match="moved by.*is the sign of the torques right"):
            make_arm(emulator, hold_time=0.2).connect()
        assert base.servoing is ServoingMode.SINGLE_LEVEL
        # The base holds it again; how fast its time passes is for the computer to say.
        assert wait_until(lambda: np.abs(base.arm.v).max() < 0.05, 60.0)
        assert travelled(base) < 0.1


def test_a_last_joint_that_obeys_backwards_is_refused():
    base = make_base(plant=QUIET)
    advance = base.actuators.move

    def odd(q, is_torque, tau):
        tau = np.array(tau)
        tau[6] = -tau[6]
        return advance(q, is_torque, tau)

    base.actuators.move = odd
    with RunningEmulator(base) as emulator:
        with pytest.raises(TakeoverRefused, match="joint_7 moves backwards"):
            make_arm(emulator, probe_torque=0.25).connect()
    assert travelled(base) < 0.03


def test_a_blocked_joint_is_refused():
    base = make_base(plant=QUIET)
    advance = base.actuators.move

    def blocked(q, is_torque, tau):
        return advance(q, is_torque & (np.arange(7) < 6), tau)

    base.actuators.move = blocked
    with RunningEmulator(base) as emulator, pytest.raises(TakeoverRefused, match="joint_7 does not move under 2.2 Nm"):
        make_arm(emulator, probe_torque=0.25).connect()


def test_a_moving_arm_is_refused():
    base = make_base(plant=QUIET)
    advance, start = base.actuators.move, time.monotonic()
    base.actuators.move = lambda q, is_torque, tau: advance(q + 0.3 * (time.monotonic() - start), is_torque, tau)
    with RunningEmulator(base) as emulator, pytest.raises(TakeoverRefused, match="moves: .* rad in 0.03 s"):
        make_arm(emulator, connect_timeout=0.5).connect()


@pytest.mark.parametrize(
    ("changes", "words"), [({"password": "x"}, "INVALID_PASSWORD"), ({"username": "x"}, "USER_NOT_FOUND")]
)
def test_wrong_user_or_password(changes, words):
    with RunningEmulator(make_base()) as emulator, pytest.raises(KortexServerError, match=f"CREATE_SESSION.*{words}"):
        make_arm(emulator, **changes).connect()


def test_no_base_says_where_it_was_looked_for():
    with RunningEmulator(make_base()) as emulator:
        ports = emulator.ports
    emulator.ports = ports
    with pytest.raises(KortexConnectionLost, match=f"TCP 127.0.0.1:{ports['port']}: .*refused"):
        make_arm(emulator, connect_timeout=0.2).connect()


def test_an_emergency_stop_in_force_is_refused_with_its_name():
    base = make_base()
    base.press_emergency_stop()
    with RunningEmulator(base) as emulator:
        with pytest.raises(TakeoverRefused, match="not ready: IN_FAULT, joint_1: EMERGENCY_LINE_ASSERTED"):
            make_arm(emulator).connect()


def test_robots_that_are_none_of_kinovas_are_refused():
    with pytest.raises(ParameterOutOfRange, match="protocol: kortex"):
        KortexArm(load_textbook("kuka_lbr_med7"))


def test_velocities_from_positions_need_their_bound_in_the_robot_file():
    with pytest.raises(ParameterOutOfRange, match="velocity_error"):
        KortexArm(ROBOT, KortexSettings(velocity=VelocitySource.POSITIONS))


def test_a_base_without_an_address_is_refused():
    with pytest.raises(ParameterOutOfRange, match="robot_ip"):
        KortexSettings(robot_ip="")


# While it runs


@pytest.fixture
def running():
    base = make_base(payload="1.0")
    with RunningEmulator(base) as emulator:
        loop = started(make_loop(make_arm(emulator)), 0.1)
        yield emulator, loop
        loop.release("test")


def expect_lost(loop, words, cycles=20):
    run(loop, cycles * PERIOD)
    status = loop.status()
    assert status.mode is LoopMode.FAULT and status.code is LoopCode.HARDWARE and loop.is_handed_back
    assert words in status.reason, status.reason
    with pytest.raises(ArmError, match="needs a connected arm"):
        loop.arm.command(np.zeros(7))


def expect_taken_over_again(loop):
    loop.connect()
    run(loop, 0.1)
    assert loop.mode is LoopMode.HOLD


@pytest.mark.parametrize(
    "fault",
    [Safety.FOLLOWING_ERROR, Safety.MAXIMUM_VELOCITY, Safety.MAXIMUM_TORQUE, Safety.JOINT_LIMIT_HIGH,
     Safety.MAXIMUM_MOTOR_TEMPERATURE, Safety.WATCHDOG_TRIGGERED],
)  # fmt: skip
def test_a_fault_of_an_actuator_ends_torque_and_is_named(running, fault):
    emulator, loop = running

    def trip(base):
        base.actuators.faults[3] = int(fault)

    emulator.now(trip)
    expect_lost(loop, f"joint_4: {fault.name}")
    assert emulator.base.servoing is ServoingMode.SINGLE_LEVEL
    expect_taken_over_again(loop)


def test_the_emergency_stop_ends_torque_and_the_arm_can_be_taken_over_again(running):
    emulator, loop = running
    emulator.now(lambda base: base.press_emergency_stop())
    expect_lost(loop, "WRONG_SERVOING_MODE")
    assert np.abs(emulator.base.arm.v).max() < 0.05
    with pytest.raises(TakeoverRefused, match="EMERGENCY_LINE_ASSERTED"):
        loop.connect()
    emulator.now(lambda base: base.press_emergency_stop(False))
    expect_taken_over_again(loop)


def test_after_a_stop_the_base_holds_and_the_arm_can_be_read(running):
    emulator, loop = running
    q = emulator.base.arm.q
    loop.arm.stop("test")
    states = [loop.arm.read() for _ in range(50)]
    assert all(state.ok for state in states) and emulator.base.servoing is ServoingMode.SINGLE_LEVEL
    assert emulator.base.reports[-1] == "the base holds the arm: asked for"
    np.testing.assert_allclose(emulator.base.arm.q, q, atol=5e-3)
    loop.arm.connect()
    assert loop.arm.read().ok


def test_a_client_that_just_stops_leaves_a_held_arm(running):
    """Neither handed back nor closed: the tick is lost, the actuators hold."""
    emulator, loop = running
    q = emulator.base.arm.q
    emulator.lose_patience()
    assert any("COMMUNICATION_TICK_LOST" in report for report in emulator.base.reports)
    time.sleep(0.3)
    np.testing.assert_allclose(emulator.base.arm.q, q, atol=0.01)
    expect_lost(loop, "WRONG_SERVOING_MODE")
    assert "COMMUNICATION_TICK_LOST" in loop.status().reason


def test_a_single_request_that_is_refused_costs_one_cycle(running):
    """As where its session id was damaged on the way; an arm that says it still obeys is not given up for it."""
    emulator, loop = running
    touch, refusals = emulator.base.sessions.touch, [False, True]
    emulator.base.sessions.touch = lambda *a: touch(*a) and (refusals.pop() if refusals else True)
    run(loop, 0.02)
    assert loop.mode is LoopMode.HOLD and loop.arm.health()["errors of single requests"] == 1
    assert loop.status().invalid_cycles == 1


def test_an_emulator_that_stands_still_itself_does_not_blame_its_client(running):
    require_forgives_itself(*running)


def test_torques_that_are_no_numbers_never_leave(running):
    _, loop = running
    with pytest.raises(ArmError, match="joint_3"):
        loop.arm.command(np.array([0, 0, np.nan, 0, 0, 0, 0.0]))


def test_readings_that_jump_are_not_believed(running):
    emulator, loop = running
    feedback = emulator.base._feedback
    emulator.base._feedback = lambda frame: feedback(frame)._replace(q=feedback(frame).q + 170.0)
    assert not loop.arm.read().ok
    emulator.base._feedback = lambda frame: feedback(frame)._replace(v=feedback(frame).v + 1000.0)
    assert not loop.arm.read().ok
    emulator.base._feedback = feedback
    assert loop.arm.read().ok and loop.arm.health()["readings not plausible"] == 2


# Angles


def test_angles_are_unwrapped_over_many_turns():
    unwrapper, q = Unwrapper(ROBOT), ROBOT.home.copy()
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(unwrapper.update(to_wire(q)), q, atol=1e-9)
    direction = np.array([1.0, 0.0, -1.0, 0.0, 1.0, 0.0, -1.0])
    for _ in range(500):
        q = q + direction * rng.uniform(0.0, 1.5)
        wire = to_wire(q)
        assert (wire >= 0.0).all() and (wire < 360.0).all()
        np.testing.assert_allclose(unwrapper.update(wire), q, atol=1e-9)
    assert np.abs(q).max() > 20.0
    assert np.abs(Unwrapper(ROBOT).update(to_wire(q))).max() <= np.pi + 1e-9


def test_the_first_reading_is_taken_inside_the_position_limits():
    q = np.array([3.0, -2.2, -3.0, 2.5, 1.0, -2.0, -1.0])
    np.testing.assert_allclose(Unwrapper(ROBOT).update(to_wire(q)), q, atol=1e-9)


def test_the_true_arm_is_not_the_nominal_one():
    """Otherwise the tests above could pass with a driver that never measures."""
    assert np.abs(draw_truth(ROBOT, "random", 3) - ROBOT.theta_nominal).max() > 0.01
