"""Messages against datagrams of KUKA's own clients, and against everything a network may send instead."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from sysid_ros.drivers.kuka_fri.codec import MONITORING_ID, FriCodec, message_classes
from sysid_ros.drivers.kuka_fri.messages import Command, Quality, SessionState
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.drivers.network import InvalidFrame

GOLDEN = json.loads((Path(__file__).parent / "data" / "fri_golden.json").read_text())["datagrams"]
MONITORING = [entry for entry in GOLDEN if entry["direction"] == "monitoring"]
COMMANDS = [entry for entry in GOLDEN if entry["direction"] == "command"]


def name_of(entry):
    return f"{entry['version']}-{entry['session']}-{entry['state']}"


def codec_of(entry):
    return FriCodec(FriVersion(entry["version"]))


def first(version, direction="monitoring", state="COMMANDING_ACTIVE"):
    for entry in GOLDEN:
        if (entry["version"], entry["direction"], entry["state"]) == (version, direction, state):
            return bytes.fromhex(entry["hex"])
    raise LookupError(version)


def fill(message, fields):
    """Builds a message from the listed values, which were decoded by another implementation."""
    for name, value in fields.items():
        if isinstance(value, dict):
            getattr(message, name).SetInParent()
            fill(getattr(message, name), value)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value.encode() if isinstance(value, str) else value)


def framed(message):
    return struct.pack("<I", len(message)) + message + struct.pack("<I", zlib.crc32(message))


@pytest.mark.parametrize("entry", GOLDEN, ids=name_of)
def test_schema_writes_the_same_bytes(entry):
    """From the listed values alone: no field is missing from the table, and none can hide among unknown ones."""
    kind = "FRIMonitoringMessage" if entry["direction"] == "monitoring" else "FRICommandMessage"
    message = message_classes(FriVersion(entry["version"]))[kind]()
    fill(message, entry["fields"])
    data = message.SerializeToString()
    assert (framed(data) if entry["version"] == "2.7" else data).hex() == entry["hex"]


def test_the_datagrams_cover_all_versions_and_states():
    seen = {(entry["version"], entry["direction"], entry["state"]) for entry in GOLDEN}
    states = [state.name for state in SessionState]
    versions = [version.value for version in FriVersion]
    commands = {(version, "command", state) for version in versions for state in states[1:]}  # none is owed in IDLE
    assert seen == {(version, "monitoring", state) for version in versions for state in states} | commands
    assert len(MONITORING) == 105 and len(COMMANDS) == 94


@pytest.mark.parametrize("entry", COMMANDS, ids=name_of)
def test_commands_of_real_clients_survive_decoding_and_encoding(entry):
    codec, data = codec_of(entry), bytes.fromhex(entry["hex"])
    command = codec.decode_command(data)
    assert codec.encode_command(command) == data
    assert command.sequence == entry["fields"]["header"]["sequenceCounter"]
    listed = entry["fields"].get("commandData", {})
    for values, name in ((command.q, "jointPosition"), (command.tau, "jointTorque")):
        np.testing.assert_array_equal([] if values is None else values, listed.get(name, {}).get("value", []))


@pytest.mark.parametrize("entry", MONITORING, ids=name_of)
def test_monitoring_messages_say_what_is_listed(entry):
    message, fields = codec_of(entry).decode_monitoring(bytes.fromhex(entry["hex"])), entry["fields"]
    data = fields["monitorData"]
    assert message.state is SessionState[entry["state"]]
    assert message.send_period == pytest.approx(1e-3 * fields["connectionInfo"]["sendPeriod"])
    assert message.receive_multiplier == fields["connectionInfo"]["receiveMultiplier"]
    assert message.quality == fields["connectionInfo"]["quality"]
    assert message.control_mode == fields["robotInfo"]["controlMode"]
    np.testing.assert_array_equal(message.q, data["measuredJointPosition"]["value"])
    np.testing.assert_array_equal(message.tau, data["measuredTorque"]["value"])
    np.testing.assert_array_equal(message.tau_external, data["externalTorque"]["value"])
    assert message.stamp_ns == data["timestamp"]["sec"] * 10**9 + data["timestamp"]["nanosec"]
    assert (message.q_ipo is not None) == message.state.is_commanding == ("jointPosition" in fields["ipoData"])
    assert message.command_mode == fields["ipoData"]["clientCommandMode"]
    if entry["version"] == "1.15":
        np.testing.assert_array_equal(message.q_commanded, data["commandedJointPosition"]["value"])
    else:
        assert message.q_commanded is None


@pytest.mark.parametrize("entry", MONITORING, ids=name_of)
def test_our_controller_writes_what_clients_accepted(entry):
    codec, data, listed = codec_of(entry), bytes.fromhex(entry["hex"]), entry["fields"]["monitorData"]
    message = codec.decode_monitoring(data)
    if entry["version"] != "1.15":  # what clients of this suite do not read
        flange = np.array(listed["measuredCartesianPose"]["element"])
        message = message._replace(flange=flange, redundancy=listed["measuredRedundancyInformation"]["value"])
    if entry["version"] == "2.7":
        message = message._replace(force=np.array(listed["externalForce"]["element"]))
    assert codec.encode_monitoring(message) == data


@pytest.mark.parametrize("version", list(FriVersion))
def test_everything_written_is_read_back(version):
    codec = FriCodec(version)
    message = codec.decode_monitoring(first(version.value))
    again = codec.decode_monitoring(codec.encode_monitoring(message))
    for one, other in zip(message, again, strict=True):
        np.testing.assert_array_equal(one, other)
    command = Command(2**32 - 1, 7, np.linspace(-1, 1, 7), np.arange(7.0), np.arange(6.0))
    for one, other in zip(command, codec.decode_command(codec.encode_command(command)), strict=True):
        np.testing.assert_array_equal(one, other)


# What a client must take and what it must refuse; the cases of vendor clients on loopback


def changed(version="1.15", **changes):
    """A good message with fields changed by a function of the protobuf message."""
    message = message_classes(FriVersion(version))["FRIMonitoringMessage"]()
    data = first(version)
    message.ParseFromString(data[4:-4] if version == "2.7" else data)
    changes["by"](message)
    data = message.SerializePartialToString()
    return framed(data) if version == "2.7" else data


def decode(data, version="1.15"):
    return FriCodec(FriVersion(version)).decode_monitoring(data)


def test_packed_joint_values_are_accepted():
    q = [0.1 * k for k in range(7)]
    packed = bytes([0x0A, 56]) + struct.pack("<7d", *q)
    data = first("1.15")
    message = message_classes(FriVersion.V1_15)["FRIMonitoringMessage"]()
    message.ParseFromString(data)
    plain = message.monitorData.measuredJointPosition.SerializeToString()
    monitor = message.monitorData.SerializeToString()
    new = monitor.replace(b"\x0a" + bytes([len(plain)]) + plain, b"\x0a" + bytes([len(packed)]) + packed)
    assert len(new) < len(monitor) < 400

    def length(n):
        return bytes([n & 0x7F | 0x80, n >> 7])

    data = data.replace(b"\x1a" + length(len(monitor)) + monitor, b"\x1a" + length(len(new)) + new)
    np.testing.assert_array_equal(decode(data).q, q)


def test_unknown_fields_are_skipped():
    assert decode(first("1.15") + b"\x70\x05").state is SessionState.COMMANDING_ACTIVE


def test_without_connection_info_the_session_is_idle():
    message = decode(changed(by=lambda m: m.ClearField("connectionInfo")))
    assert message.state is SessionState.IDLE and message.quality is Quality.POOR


def test_absent_receive_multiplier_is_one():
    assert decode(changed(by=lambda m: m.connectionInfo.ClearField("receiveMultiplier"))).receive_multiplier == 1


REFUSED = {
    "message identifier 0x245143": lambda m: setattr(m.header, "messageIdentifier", MONITORING_ID + 1),
    "missing": lambda m: m.header.ClearField("sequenceCounter"),
    "measuredJointPosition has 6 values": lambda m: m.monitorData.measuredJointPosition.value.pop(),
    "measuredTorque has 8 values": lambda m: m.monitorData.measuredTorque.value.append(1.0),
    "jointPosition has 1 values": lambda m: m.ipoData.jointPosition.CopyFrom(type(m.ipoData.jointPosition)(value=[1])),
    "measuredTorque is .*nan": lambda m: m.monitorData.measuredTorque.value.__setitem__(3, float("nan")),
    "measuredJointPosition is .*inf": lambda m: m.monitorData.measuredJointPosition.value.__setitem__(0, float("inf")),
    "measuredJointPosition is .*1e": lambda m: m.monitorData.measuredJointPosition.value.__setitem__(0, 1e300),
    "sessionState is 7": lambda m: setattr(m.connectionInfo, "sessionState", 7),
    "clientCommandMode is 5": lambda m: setattr(m.ipoData, "clientCommandMode", 5),
    "controlMode is -1": lambda m: setattr(m.robotInfo, "controlMode", -1),
    "send period 4000000000 ms": lambda m: setattr(m.connectionInfo, "sendPeriod", 4_000_000_000),
    "time stamp": lambda m: setattr(m.monitorData.timestamp, "nanosec", 10**9),
    "trackingPerformance is nan": lambda m: setattr(m.ipoData, "trackingPerformance", float("nan")),
}


@pytest.mark.parametrize("version", [v.value for v in FriVersion])
@pytest.mark.parametrize("words", REFUSED)
def test_what_is_wrong_is_refused_in_words(words, version):
    with pytest.raises(InvalidFrame, match=words):
        decode(changed(version, by=REFUSED[words]), version)


def test_frames_of_other_versions_are_refused():
    with pytest.raises(InvalidFrame):
        decode(first("2.7"), "1.15")
    with pytest.raises(InvalidFrame, match="length field"):
        decode(first("2.5"), "2.7")


def test_a_wrong_checksum_is_refused():
    data = bytearray(first("2.7"))
    data[100] ^= 1
    with pytest.raises(InvalidFrame, match="checksum"):
        decode(bytes(data), "2.7")


@pytest.mark.parametrize("version", [v.value for v in FriVersion])
def test_every_truncation_is_refused_or_says_less(version):
    """A protobuf message may end after any field; then fields are absent, never wrong."""
    data, full = first(version), decode(first(version), version)
    for size in range(len(data)):
        try:
            message = decode(data[:size], version)
        except InvalidFrame:
            continue
        assert version != "2.7"
        for one, other in zip(message, full, strict=True):
            assert other is not None or one is None
            if isinstance(one, np.ndarray):
                np.testing.assert_array_equal(one, other)


def test_too_long_and_empty_datagrams_are_refused():
    for data in (b"", b"\0" * 2000, first("1.15") + b"\x7a\x90\x0b" + b"\0" * 1424):
        with pytest.raises(InvalidFrame):
            decode(data)


@pytest.mark.parametrize("version", [v.value for v in FriVersion])
def test_random_and_mutated_datagrams_raise_nothing_else(version):
    """A short version; the full campaign is in bench/bench_fri.py."""
    rng = np.random.default_rng(5)
    codec = FriCodec(FriVersion(version))
    seeds = [bytes.fromhex(e["hex"]) for e in GOLDEN if e["version"] == version]
    accepted = 0
    for _ in range(10_000):
        data = bytearray(seeds[rng.integers(len(seeds))])
        for _ in range(rng.integers(1, 6)):
            data[rng.integers(len(data))] = rng.integers(256)
        if rng.random() < 0.3:
            data = data[: rng.integers(len(data))]
        if rng.random() < 0.1:
            data = bytearray(rng.bytes(rng.integers(0, 1600)))
        elif version == "2.7" and rng.random() < 0.7:
            data = bytearray(framed(bytes(data[4:-4])))
        for read in (codec.decode_monitoring, codec.decode_command):
            try:
                message = read(bytes(data))
            except InvalidFrame:
                continue
            accepted += 1
            for values in (message.q, message.tau):
                assert values is None or (values.shape == (7,) and np.isfinite(values).all())
    assert accepted > 100  # or the mutations were too coarse to test anything
