"""The emulated base, spoken to frame by frame: sessions, errors, faults and what the arm does then."""

import numpy as np
import pytest
from kortex_bench import ROBOT, make_base

from sysid_ros.drivers.kinova_kortex.enums import ArmState, FrameType, Function, Safety, ServoingMode, SubError
from sysid_ros.drivers.kinova_kortex.frame import Frame, decode_frame, encode_frame, message_class, parse
from sysid_ros.drivers.kinova_kortex.messages import Command, decode_feedback, encode_command, to_wire
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.kinova_kortex.tcp import session_request
from sysid_ros.drivers.modes import Noise
from sysid_ros.emulators.kortex.__main__ import main
from sysid_ros.emulators.kortex.base import TCP, UDP
from sysid_ros.emulators.plant import PlantSettings

QUIET = PlantSettings(noise=Noise.NONE)


class Client:
    """Asks one frame at a time."""

    def __init__(self, base, transport, **settings):
        self.base, self.transport, self.session, self.message = base, transport, 0, 0
        self.opened = self.ask(Function.CREATE_SESSION, session_request(KortexSettings(**settings)))
        self.session = self.opened.session

    def ask(self, function, payload=b"", device=0, session=None):
        self.message += 1
        number = self.session if session is None else session
        frame = Frame(FrameType.REQUEST, function, number, self.message, device, payload)
        reply = decode_frame(self.base.answer(self.transport, self, encode_frame(frame)))
        assert reply.kind is FrameType.RESPONSE and reply.message == self.message and reply.function == function
        return reply

    def set_servoing(self, mode):
        return self.ask(
            Function.SET_SERVOING_MODE, message_class("ServoingModeInformation")(servoing_mode=mode).SerializeToString()
        )

    def set_control(self, mode, device):
        payload = message_class("ControlModeInformation")(control_mode=mode).SerializeToString()
        return self.ask(Function.SET_CONTROL_MODE, payload, device)

    def refresh(self, frame, tau=None, q=None, flags=1):
        arm = self.base.arm
        q = to_wire(arm.q) if q is None else q
        return self.ask(Function.REFRESH, encode_command(Command(frame, q, np.zeros(7) if tau is None else tau, flags)))


@pytest.fixture
def base():
    return make_base(plant=QUIET)


@pytest.fixture
def tcp(base):
    return Client(base, TCP)


@pytest.fixture
def udp(base):
    return Client(base, UDP)


def go_low(tcp):
    assert not tcp.set_servoing(ServoingMode.LOW_LEVEL).error


def go_torque(tcp, udp, joint):
    go_low(tcp)
    udp.refresh(1)
    tcp.set_control(3, joint)


def gravity(base):
    return base.arm.dynamics.gravity(base.arm.q) + base.arm.friction[:, 3]


def test_each_transport_has_its_own_session(base, tcp, udp):
    assert tcp.session and udp.session and tcp.session != udp.session and len(base.sessions) == 2
    reply = tcp.ask(Function.GET_ACTUATOR_COUNT)
    assert reply.session == tcp.session and parse("ActuatorInformation", reply.payload).count == 7
    reply = udp.ask(Function.GET_ACTUATOR_COUNT)
    assert reply.sub_error == SubError.UNSUPPORTED_SERVICE
    assert tcp.ask(Function.REFRESH_FEEDBACK).sub_error == SubError.UNSUPPORTED_SERVICE


@pytest.mark.parametrize("number", [0, 1, 0xFFFF])
def test_without_a_session_nothing_is_done(base, tcp, udp, number):
    for client, function in ((tcp, Function.CLEAR_FAULTS), (udp, Function.REFRESH_FEEDBACK)):
        reply = client.ask(function, session=number)
        assert (reply.error, reply.sub_error) == (1, SubError.INVALID_SESSION)
        error = parse("Error", reply.payload)
        assert error.error_sub_code == SubError.INVALID_SESSION and error.error_sub_string == b"invalid session"


def test_a_session_of_somebody_else_is_none(base, tcp, udp):
    assert tcp.ask(Function.CLEAR_FAULTS, session=udp.session).sub_error == SubError.INVALID_SESSION
    assert not Client(base, TCP).ask(Function.CLEAR_FAULTS).sub_error


def test_user_and_password(base):
    assert Client(base, TCP, username="root").opened.sub_error == SubError.USER_NOT_FOUND
    assert Client(base, TCP, password="root").opened.sub_error == SubError.INVALID_PASSWORD


def test_closed_and_silent_sessions_end(base, tcp, udp):
    tcp.ask(Function.CLOSE_SESSION)
    assert tcp.ask(Function.KEEP_ALIVE).sub_error == SubError.INVALID_SESSION
    for k in range(2100):
        base.advance()
        if k == 1000:
            assert not udp.ask(Function.KEEP_ALIVE).error
    assert not udp.ask(Function.KEEP_ALIVE).error
    for _ in range(2100):
        base.advance()
    assert udp.ask(Function.KEEP_ALIVE).sub_error == SubError.INVALID_SESSION
    assert "udp session ended" in base.reports[-1]


@pytest.mark.parametrize(
    ("function", "payload", "error"),
    [
        (0x20001, b"", SubError.UNSUPPORTED_METHOD),
        (0x50001, b"", SubError.UNSUPPORTED_SERVICE),
        (Function.SET_SERVOING_MODE, b"\xff\xff", SubError.PAYLOAD_DECODING_ERR),
        (Function.SET_SERVOING_MODE, b"\x08\x09", SubError.INVALID_PARAM),
        (Function.SET_SERVOING_MODE, b"\x08\x04", SubError.CONTROL_PERMISSION_DENIED),
        (Function.SET_CONTROL_MODE, b"\x08\x03", SubError.INVALID_DEVICE),
    ],
)
def test_what_the_base_does_not_do(tcp, function, payload, error):
    assert tcp.ask(function, payload).sub_error == error


def test_torque_control_and_commands_need_low_level_servoing(base, tcp, udp):
    assert tcp.set_control(3, 1).sub_error == SubError.WRONG_SERVOING_MODE
    reply = udp.refresh(1)
    assert (reply.error, reply.sub_error) == (3, SubError.WRONG_SERVOING_MODE)
    assert parse("Error", reply.payload).error_sub_string == b"wrong servoing mode"
    go_low(tcp)
    assert not udp.refresh(1).error and not tcp.set_control(3, 1).error
    assert parse("ArmStateInformation", tcp.ask(Function.GET_ARM_STATE).payload).active_state == 6
    assert parse("ControlModeInformation", tcp.ask(Function.GET_CONTROL_MODE, device=1).payload).control_mode == 3
    tcp.set_servoing(ServoingMode.SINGLE_LEVEL)
    assert udp.refresh(2).sub_error == SubError.WRONG_SERVOING_MODE


def test_torques_move_the_arm_and_held_joints_stay(base, tcp, udp):
    go_low(tcp)
    start = base.arm.q
    udp.refresh(1)
    tcp.set_control(3, 7)
    for k in range(2, 100):
        udp.refresh(k, np.array([0, 0, 0, 0, 0, 0, 1.5]))
        base.advance()
    assert base.arm.q[6] > start[6] + 0.01
    np.testing.assert_allclose(base.arm.q[:6], start[:6], atol=2e-3)
    reply = decode_feedback(udp.refresh(200, np.zeros(7)).payload, 7)
    assert reply.tau[6] == pytest.approx(-1.5) and reply.frame == 200 and reply.commands == (99,) * 7


def test_torques_beyond_the_limit_are_clipped(base, tcp, udp):
    go_torque(tcp, udp, 7)
    udp.refresh(2, np.array([0, 0, 0, 0, 0, 0, 1000.0]))
    base.advance()
    assert base.actuators.measured.tau[6] == pytest.approx(-ROBOT.limits.tau_max[6])


def test_frames_that_are_not_newer_are_rejected(base, tcp, udp):
    go_low(tcp)
    for frame, rejected in ((65534, 0), (65534, 1), (65533, 2), (65535, 2), (0, 2), (65535, 3), (40000, 4), (5, 4)):
        udp.refresh(frame)
        assert base.actuators.rejected == rejected, frame


def test_following_error_warns_then_trips_and_the_arm_is_held(base, tcp, udp):
    q = to_wire(base.arm.q)
    go_torque(tcp, udp, 7)
    q[6] += 3.5
    udp.refresh(2, gravity(base), q)
    base.advance()
    feedback = decode_feedback(udp.refresh(3, gravity(base), q).payload, 7)
    assert feedback.warnings[6] == Safety.FOLLOWING_ERROR and not any(feedback.faults)
    q[6] += 2.0
    udp.refresh(4, gravity(base), q)
    base.advance()
    assert base.servoing is ServoingMode.SINGLE_LEVEL and base.state is ArmState.IN_FAULT
    assert udp.refresh(5).sub_error == SubError.WRONG_SERVOING_MODE
    assert tcp.set_servoing(ServoingMode.LOW_LEVEL).sub_error == SubError.ROBOT_IN_FAULT
    feedback = decode_feedback(udp.ask(Function.REFRESH_FEEDBACK).payload, 7)
    assert feedback.faults[6] == Safety.FOLLOWING_ERROR and feedback.state is ArmState.IN_FAULT
    tcp.ask(Function.CLEAR_FAULTS)
    go_low(tcp)


def test_a_client_that_stops_following_is_stopped_by_the_following_error(base, tcp, udp):
    """The safeguard Kinova relies on: a torque that stays makes the joint move away from the last position."""
    base.actuators._watchdog_time = 10.0
    go_torque(tcp, udp, 7)
    start = base.arm.q[6]
    udp.refresh(2, np.array([0, 0, 0, 0, 0, 0, 3.0]))
    for _ in range(500):
        base.advance()
    assert base.actuators.faults[6] & Safety.FOLLOWING_ERROR
    assert np.radians(5.0) < base.arm.q[6] - start < np.radians(12.0) and abs(base.arm.v[6]) < 0.01


def test_silence_in_low_level_servoing_loses_the_tick(base, tcp, udp):
    go_low(tcp)
    udp.refresh(1)
    for _ in range(150):
        base.advance()
    assert base.actuators.faults.all() and "COMMUNICATION_TICK_LOST" in base.reports[-2]


def test_the_emergency_stop(base, tcp, udp):
    go_low(tcp)
    assert not tcp.ask(Function.APPLY_EMERGENCY_STOP).error
    base.advance()
    assert udp.refresh(1).sub_error == SubError.WRONG_SERVOING_MODE
    assert tcp.set_servoing(ServoingMode.LOW_LEVEL).sub_error == SubError.ROBOT_IN_EMERGENCY_STOP
    tcp.ask(Function.CLEAR_FAULTS)
    base.advance()
    assert base.actuators.is_in_fault
    base.press_emergency_stop(False)
    tcp.ask(Function.CLEAR_FAULTS)
    go_low(tcp)


def test_a_tcp_connection_that_is_gone_ends_torques(base, tcp, udp):
    go_low(tcp)
    base.disconnect(tcp)
    assert base.servoing is ServoingMode.SINGLE_LEVEL and len(base.sessions) == 1


@pytest.mark.parametrize("flags", [0, 2])
def test_actuators_that_are_not_enabled_hold(base, tcp, udp, flags):
    go_torque(tcp, udp, 7)
    start = base.arm.q
    for k in range(2, 50):
        udp.refresh(k, np.full(7, 3.0), flags=flags)
        base.advance()
    np.testing.assert_allclose(base.arm.q, start, atol=2e-3)


def test_bytes_that_are_no_frame_are_counted_and_not_answered(base):
    rng = np.random.default_rng(0)
    for size in range(200):
        assert base.answer(UDP, "x", rng.bytes(size)) is None
    assert base.malformed == 200
    ping = Frame(FrameType.PING, Function.KEEP_ALIVE, 0, 7)
    assert decode_frame(base.answer(TCP, "x", encode_frame(ping))).kind is FrameType.PONG
    assert base.answer(TCP, "x", encode_frame(ping._replace(kind=FrameType.NOTIFICATION))) is None


def test_what_is_refused_is_said_with_its_reason(base):
    """The first time, and not again at once: a client may ask a thousand times a second."""
    stranger = Client(base, TCP, password="wrong")
    for _ in range(20):
        stranger.ask(Function.GET_CONTROL_MODE, device=1)
    (said,) = base.refusals
    assert "CREATE_SESSION over tcp" in said and "0 frames, 1 requests" in said
    base.advance()
    base.time += 3.0
    stranger.ask(Function.GET_CONTROL_MODE, device=1)
    assert "GET_CONTROL_MODE over tcp: invalid session" in base.refusals[-1] and "22 requests" in base.refusals[-1]


def test_old_commands_are_refused_and_named(base, tcp, udp):
    go_low(tcp)
    udp.refresh(5)
    udp.refresh(4)
    assert "refused a command with frame 4: the last had 5" in base.refusals[-1]


def test_the_command_line_refuses_in_one_sentence(capsys):
    assert main(["--robot", "kuka_lbr_med7"]) == 2
    assert "expected one with 'protocol: kortex'" in capsys.readouterr().err
    assert main(["--watchdog-time", "0"]) == 2
    assert main(["--measured-sign", "0.5"]) == 2


@pytest.mark.parametrize(
    ("joint", "torque", "fault"),
    [(5, 2.0, Safety.JOINT_LIMIT_HIGH), (5, -2.0, Safety.JOINT_LIMIT_LOW), (6, 8.0, Safety.MAXIMUM_VELOCITY)],
)
def test_a_joint_that_leaves_its_limits_is_stopped(base, tcp, udp, joint, torque, fault):
    is_slow = fault is not Safety.MAXIMUM_VELOCITY
    q = base.arm.q
    q[joint] = np.sign(torque) * (ROBOT.limits.q_upper[joint] - 0.2) if is_slow else 0.0
    base.arm.place(q)
    base.actuators.hold()
    go_torque(tcp, udp, joint + 1)
    tau = np.zeros(7)
    for k in range(2, 2000):
        tau[joint] = gravity(base)[joint] + torque - 3.0 * is_slow * base.arm.v[joint]
        udp.refresh(k, tau)
        base.advance()
        if base.actuators.is_in_fault:
            break
    assert base.actuators.faults[joint] == int(fault) and base.servoing is ServoingMode.SINGLE_LEVEL
    q = base.arm.q[joint]
    for _ in range(200):
        base.advance()
    assert abs(base.arm.v[joint]) < 0.02 and abs(base.arm.q[joint] - q) < 0.1
    if is_slow:
        assert abs(abs(q) - ROBOT.limits.q_upper[joint] - np.radians(1.0)) < 0.01
