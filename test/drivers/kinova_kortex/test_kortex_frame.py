"""Frames and messages: the reference bytes, and that nothing but a message gets through the decoders."""

import json
from pathlib import Path

import numpy as np
import pytest

from sysid_ros.drivers.kinova_kortex.enums import (
    ArmState,
    ControlMode,
    DeviceType,
    ErrorCode,
    FrameType,
    Function,
    Safety,
    name_faults,
)
from sysid_ros.drivers.kinova_kortex.frame import (
    LARGEST_FRAME,
    MESSAGES,
    TCP_MARK,
    Frame,
    TcpFrames,
    decode_frame,
    encode_frame,
    message_class,
    parse,
    wrap_for_tcp,
)
from sysid_ros.drivers.kinova_kortex.messages import (
    Command,
    decode_actuators,
    decode_arm_state,
    decode_command,
    decode_feedback,
    decode_serial_number,
    encode_command,
    encode_feedback,
)
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.kinova_kortex.tcp import error_of, session_request
from sysid_ros.drivers.network import InvalidFrame

GOLDEN = {
    (case["name"], case["transport"]): case
    for case in json.loads((Path(__file__).parent / "data" / "kortex_golden.json").read_text())["cases"]
}
WIRE = {name: bytes.fromhex(case["frame_hex"]) for name, case in GOLDEN.items()}


def frame_of(name, transport="udp"):
    return decode_frame(WIRE[name, transport])


@pytest.mark.parametrize("case", GOLDEN.values(), ids=lambda case: f"{case['name']} {case['transport']}")
def test_reference_frames_byte_for_byte(case):
    frame, header = decode_frame(bytes.fromhex(case["frame_hex"])), case["header"]
    assert frame.kind == header["frame_type"] and frame.device == header["device_id"]
    assert (frame.session, frame.message) == (header["session_id"], header["message_id"])
    assert frame.function == int(header["function_uid"], 16)
    assert (frame.error, frame.sub_error) == (header["error_code"], header["error_sub_code"])
    assert frame.payload.hex() == case["payload_hex"]
    encoded = encode_frame(frame)
    assert encoded.hex() == case["frame_hex"]
    wire = wrap_for_tcp(encoded) if case["transport"] == "tcp" else encoded
    assert wire.hex() == case["wire_hex"]


def test_the_client_makes_the_reference_payloads():
    assert session_request(KortexSettings()) == frame_of("CreateSession request", "tcp").payload
    low = message_class("ServoingModeInformation")(servoing_mode=3).SerializeToString()
    assert low == frame_of("SetServoingMode(LOW_LEVEL) request", "tcp").payload


@pytest.mark.parametrize("name", ["Refresh(torque) request", "Refresh(torque) request, frame_id 0 after the wrap"])
def test_reference_commands(name):
    payload = frame_of(name).payload
    command = decode_command(payload, 7)
    assert encode_command(command) == payload
    np.testing.assert_allclose(command.q, [0, 15, 180, 230, 0, 55, 90])
    np.testing.assert_allclose(command.tau, [0, -10.25, 0.5, 12, -0.25, 1.5, 0])
    assert command.flags == 1 and command.frame == (0 if "wrap" in name else 18)


def test_reference_feedback():
    payload = frame_of("RefreshFeedback response").payload
    feedback = decode_feedback(payload, 7)
    np.testing.assert_allclose(feedback.q, [0, 15, 180, 230, 0, 55, 90])
    np.testing.assert_allclose(feedback.v, 0.25 * np.arange(7))
    np.testing.assert_allclose(feedback.tau, [0.1, -9.2, 0.5, 12.1, -0.3, 1.5, 0], rtol=1e-6)
    assert feedback.state.name == "SERVOING_LOW_LEVEL" and feedback.commands == (17,) * 7
    assert decode_feedback(encode_feedback(feedback), 7)._replace(q=0, v=0, tau=0) == feedback._replace(q=0, v=0, tau=0)
    assert message_class("Feedback").FromString(payload).SerializeToString() == payload


def test_reference_error():
    error = error_of("REFRESH", frame_of("Refresh response with error"))
    assert (error.code, error.sub_code, error.text) == (3, 75, "wrong servoing mode")
    assert "DEVICE, WRONG_SERVOING_MODE (wrong servoing mode)" in str(error)


def test_tags_and_types_are_those_of_the_published_interface():
    """A few that the reference bytes do not reach; the numbers are Kinova's."""
    fields = {name: {field.split()[-1]: field for field in own} for name, own in MESSAGES.items()}
    assert fields["BaseFeedback"]["commanded_tool_pose_theta_z"] == "40 float commanded_tool_pose_theta_z"
    assert fields["BaseFeedback"]["tool_external_wrench_torque_x"].startswith("28 float")
    assert fields["BaseFeedback"]["fault_bank_a"].startswith("31 fixed32")
    assert fields["ActuatorFeedback"]["warning_bank_b"].startswith("14 fixed32")
    assert fields["DeviceHandle"]["order"].startswith("3 uint32")
    assert fields["ToolConfiguration"]["tool_mass_center"] == "3 Position tool_mass_center"
    assert [Function(0x100003 + k).name for k in range(4)] == [
        "SET_PAYLOAD_INFORMATION", "GET_PAYLOAD_INFORMATION", "SET_TOOL_CONFIGURATION", "GET_TOOL_CONFIGURATION",
    ]  # fmt: skip
    assert [ControlMode.TORQUE, ErrorCode.DEVICE, Safety.BRAKE_RELEASE_MOTION_OUT_OF_RANGE] == [3, 3, 1 << 28]
    assert name_faults(Safety.FOLLOWING_ERROR | 0x800000) == "FOLLOWING_ERROR, WATCHDOG_TRIGGERED"
    assert name_faults(1 << 31) == "bits 0x80000000"


def test_a_serial_number_is_a_short_text():
    """Field 1 of Kinova's SerialNumber, function 8 of its service 9 (DeviceConfig)."""
    assert Function.GET_SERIAL_NUMBER == 0x90008 and decode_serial_number(b"\x0a\x03K7 ") == "K7"
    assert decode_serial_number(b"") == ""
    for text in (b"\xff\x00", b"K" * 65, b"a\nb"):
        with pytest.raises(InvalidFrame, match="serial number"):
            decode_serial_number(bytes([10, len(text)]) + text)


@pytest.mark.parametrize("n", [6, 8])
def test_another_number_of_joints_is_refused(n):
    with pytest.raises(InvalidFrame, match=f"7 actuators, not {n}"):
        decode_feedback(frame_of("RefreshFeedback response").payload, n)
    with pytest.raises(InvalidFrame, match=f"7 actuators, not {n}"):
        decode_command(frame_of("Refresh(torque) request").payload, n)


@pytest.mark.parametrize("field", ["position", "velocity", "torque"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_values_that_are_no_measurement_are_refused(field, value):
    message = parse("Feedback", frame_of("RefreshFeedback response").payload)
    setattr(message.actuators[3], field, value)
    with pytest.raises(InvalidFrame, match=f"a {field} that is no measurement"):
        decode_feedback(message.SerializeToString(), 7)


def test_commands_that_differ_between_actuators_are_refused():
    message = parse("Command", frame_of("Refresh(torque) request").payload)
    message.actuators[6].command_id += 1
    with pytest.raises(InvalidFrame, match="not the frame id"):
        decode_command(message.SerializeToString(), 7)
    message.actuators[6].command_id -= 1
    message.actuators[2].flags = 0
    with pytest.raises(InvalidFrame, match="different flags"):
        decode_command(message.SerializeToString(), 7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"header.frame_info": 0x21000000}, "versions of header 2"),
        ({"header.service_info": 0x20010001}, "service 2"),
        ({"header.frame_info": 0x14000000}, "frame type 4"),
        ({"header.payload_info": 22}, "payload of 21 bytes, 22 announced"),
    ],
)
def test_frames_of_another_kind_are_refused(changes, words):
    message = message_class("Frame").FromString(WIRE["CreateSession request", "tcp"])
    for name, value in changes.items():
        setattr(message.header, name.split(".")[1], value)
    with pytest.raises(InvalidFrame, match=words):
        decode_frame(message.SerializeToString())
    with pytest.raises(InvalidFrame, match="longer than"):
        decode_frame(bytes(LARGEST_FRAME + 1))


def test_a_stream_is_cut_into_frames_wherever_it_is_broken():
    frames = [WIRE["CreateSession request", "tcp"], WIRE["SetServoingMode response", "tcp"], b"", b"x" * 300]
    stream = b"".join(wrap_for_tcp(one) for one in frames)
    for size in (1, 3, 11, 12, 13, 50, len(stream)):
        cutter, found = TcpFrames(), []
        for start in range(0, len(stream), size):
            found += cutter.feed(stream[start : start + size])
        assert found == frames
    for bad in (b"HTTP/1.1", TCP_MARK[:-1] + b"x", TCP_MARK + (LARGEST_FRAME + 1).to_bytes(4, "big")):
        with pytest.raises(InvalidFrame):
            TcpFrames().feed(bad)


def mutate(data, rng, k):
    if k % 4 == 0:
        return rng.bytes(int(rng.integers(0, 600)))
    changed = bytearray(data)
    for _ in range(1 + k % 5):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed[: int(rng.integers(len(changed)))] if k % 4 == 1 else changed)


def decode_request(data):
    return decode_command(decode_frame(data).payload, 7)


def decode_reply(data):
    return decode_feedback(decode_frame(data).payload, 7)


@pytest.mark.parametrize(
    ("decode", "name"), [(decode_request, "Refresh(torque) request"), (decode_reply, "RefreshFeedback response")]
)
def test_random_datagrams_raise_nothing_but_the_decoders_error(decode, name):
    """10 000 of each here, 100 000 in bench/bench_kortex.py."""
    rng, accepted = np.random.default_rng(1), 0
    for k in range(10_000):
        try:
            message = decode(mutate(WIRE[name, "udp"], rng, k))
        except InvalidFrame:
            continue
        accepted += 1
        assert np.isfinite(message.q).all() and np.isfinite(message.tau).all() and message.q.shape == (7,)
    assert 0 < accepted < 7_500


def devices(*ids, kind=DeviceType.BIG_ACTUATOR):
    message = message_class("DeviceHandles")()
    for number in ids:
        message.device_handle.add(device_type=kind, device_identifier=number)
    return message.SerializeToString()


@pytest.mark.parametrize("ids", [(1, 2, 0), (1, 2, 256), (1, 2, 0xFFFFFFFF), (1, 2, 2)])
def test_device_ids_that_no_frame_can_carry_are_refused(ids):
    """With 8 bits for it, id 256 would be a frame of another type for device 0."""
    assert decode_actuators(devices(7, 1, 255) + devices(0, 999, kind=DeviceType.INTERCONNECT)) == (1, 7, 255)
    with pytest.raises(InvalidFrame, match="different numbers from 1 to 255"):
        decode_actuators(devices(*ids))


def test_arm_states_that_are_none_are_refused():
    information = message_class("ArmStateInformation")
    assert decode_arm_state(information(active_state=7).SerializeToString()) is ArmState.SERVOING_READY
    with pytest.raises(InvalidFrame, match="arm state 77"):
        decode_arm_state(information(active_state=77).SerializeToString())


SERVICES = {
    "stream": (lambda data: [decode_frame(one) for one in TcpFrames().feed(data)],
               wrap_for_tcp(WIRE["GetActuatorCount response", "tcp"])),
    "devices": (lambda data: encode_frame(Frame(FrameType.REQUEST, Function.SET_CONTROL_MODE, 1, 2,
                                                (decode_actuators(data) or (1,))[-1])), devices(*range(1, 8))),
    "arm state": (decode_arm_state, b"\x08\x07"),
    "number of actuators": (lambda data: parse("ActuatorInformation", data).count, b"\x08\x07"),
    "session": (lambda data: decode_frame(data).session, WIRE["CreateSession response", "tcp"]),
    "error": (lambda data: str(error_of("CALL", decode_frame(data))), WIRE["Refresh response with error", "udp"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SERVICES)
def test_random_replies_of_the_services_raise_nothing_but_the_decoders_error(name):
    """5 000 of each here, 100 000 in bench/bench_kortex.py."""
    decode, wire = SERVICES[name]
    decode(wire)
    rng, accepted = np.random.default_rng(2), 0
    for k in range(5_000):
        try:
            decode(mutate(wire, rng, k))
        except InvalidFrame:
            continue
        accepted += 1
    assert 0 < accepted < 5_000


def test_ids_wrap_and_zeros_are_absent():
    frame = Frame(FrameType.REQUEST, Function.REFRESH, 0, 0)
    assert decode_frame(encode_frame(frame)) == frame
    assert len(encode_frame(frame)) == 12
    zero = np.zeros(7)
    assert len(encode_command(Command(0, zero, zero, 0))) == 14
