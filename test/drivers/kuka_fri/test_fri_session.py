"""The client's side of the session: states, mirror rules, counters, receive multiplier."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.link import FriSession
from sysid_ros.drivers.kuka_fri.messages import CommandMode, ControlMode, Monitoring, OverlayType, Quality, SessionState
from sysid_ros.drivers.modes import FriVersion

Q, IPO, COMMANDED = np.linspace(0.1, 0.7, 7), np.linspace(-0.3, 0.3, 7), np.linspace(1.0, 1.6, 7)
TAU = np.arange(1.0, 8.0)
STATES = list(SessionState)


class Controller:
    """Writes messages with a counter; the opposite of the session under test."""

    def __init__(self, version=FriVersion.V1_15, **defaults):
        self.codec, self.session = FriCodec(version), FriSession(FriCodec(version))
        self.defaults, self.sequence = defaults, -1

    def send(self, state, **changes):
        self.sequence += 1
        fields = {
            "sequence": self.sequence, "reflected": 0, "state": state, "quality": Quality.GOOD, "send_period": 0.002,
            "joint_count": 7, "q": Q, "tau": TAU, "q_commanded": COMMANDED, "control_mode": ControlMode.JOINT_IMPEDANCE,
            "q_ipo": IPO if state.is_commanding else None, "overlay": OverlayType.JOINT,
            "command_mode": CommandMode.TORQUE if state.is_commanding else CommandMode.NO_COMMAND,
        }  # fmt: skip
        return self.session.receive(self.codec.encode_monitoring(Monitoring(**{**fields, **self.defaults, **changes})))

    def answer(self, *values):
        data = self.session.answer(*values)
        return None if data is None else self.codec.decode_command(data)

    def exchange(self, state, *values, **changes):
        self.send(state, **changes)
        return self.answer(*values)


def same(one, other):
    return (one is None) == (other is None) and (one is None or np.array_equal(one, other))


@pytest.mark.parametrize("version", list(FriVersion))
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("mode", [CommandMode.TORQUE, CommandMode.POSITION, CommandMode.WRENCH])
def test_what_is_owed_in_each_state(version, state, mode):
    is_active, is_commanding = state is SessionState.COMMANDING_ACTIVE, state.is_commanding
    answer = Controller(version).exchange(
        state, Q, TAU, PUSH, command_mode=mode if is_commanding else CommandMode.NO_COMMAND
    )  # fmt: skip
    if state is SessionState.IDLE:
        assert answer is None
        return
    mirror = COMMANDED if version is FriVersion.V1_15 else None
    assert same(answer.q, Q if is_active else IPO if is_commanding else mirror)
    has_torque = is_commanding and mode is CommandMode.TORQUE
    assert same(answer.tau, (TAU if is_active else np.zeros(7)) if has_torque else None)
    has_wrench = is_commanding and mode is CommandMode.WRENCH
    assert same(answer.wrench, (PUSH if is_active else np.zeros(6)) if has_wrench else None)


@pytest.mark.parametrize("source", STATES)
@pytest.mark.parametrize("target", STATES)
def test_no_torque_outlives_any_change_of_state(source, target):
    controller = Controller()
    controller.exchange(source, Q, TAU)
    answer = controller.exchange(target, Q, TAU)
    if target is SessionState.COMMANDING_ACTIVE:
        assert same(answer.tau, TAU)
    elif answer is not None:
        assert answer.tau is None or not answer.tau.any()
    is_fallback = source is SessionState.COMMANDING_ACTIVE and target is not source
    assert controller.session.counts.fallbacks == is_fallback


def test_counters_reflect_and_count_what_is_sent():
    controller = Controller()
    sequences = []
    for state in [SessionState.MONITORING_WAIT] * 3 + [SessionState.IDLE] + [SessionState.COMMANDING_WAIT] * 2:
        answer = controller.exchange(state)
        if answer is not None:
            assert answer.reflected == controller.sequence
            sequences.append(answer.sequence)
    assert sequences == [0, 1, 2, 3, 4]


def test_receive_multiplier_of_three_answers_every_third():
    controller = Controller(receive_multiplier=3)
    answers = [controller.exchange(SessionState.MONITORING_READY) for _ in range(57)]
    assert [k for k, answer in enumerate(answers) if answer] == list(range(2, 57, 3))
    assert sum(answer is not None for answer in answers) == 19


def test_a_message_is_answered_once():
    controller = Controller()
    controller.send(SessionState.MONITORING_READY)
    assert controller.answer() is not None and controller.answer() is None


def test_gaps_repetitions_and_late_messages_are_counted_and_never_used_twice():
    controller = Controller()
    controller.send(SessionState.MONITORING_READY)
    controller.sequence = 5
    assert controller.send(SessionState.MONITORING_READY).sequence == 6
    counts = controller.session.counts.sequence
    assert (counts.lost, counts.gaps) == (5, 1)
    controller.sequence = 5
    assert controller.send(SessionState.COMMANDING_ACTIVE) is None  # again number 6
    controller.sequence = 2
    assert controller.send(SessionState.COMMANDING_ACTIVE) is None  # number 3, late
    assert controller.session.state is SessionState.MONITORING_READY
    counts = controller.session.counts.sequence
    assert (counts.duplicated, counts.late, counts.lost, counts.received) == (1, 1, 4, 2)


def test_a_controller_that_starts_anew_is_followed_after_three_messages():
    controller = Controller()
    controller.sequence = 5000
    controller.exchange(SessionState.COMMANDING_ACTIVE, Q, TAU)
    controller.sequence = -1
    answers = [controller.exchange(SessionState.MONITORING_WAIT) for _ in range(5)]
    assert [answer is not None for answer in answers] == [False, False, True, True, True]
    assert controller.session.counts.sequence.restarts == 1


def test_the_counter_wraps():
    controller = Controller()
    controller.sequence = 2**32 - 3
    for _ in range(2):
        assert controller.send(SessionState.MONITORING_READY) is not None
    controller.sequence = -1
    assert controller.send(SessionState.MONITORING_READY) is not None
    assert controller.session.counts.sequence.lost == 0


def test_a_corrupted_counter_does_not_silence_the_session():
    controller = Controller()
    controller.send(SessionState.MONITORING_READY)
    controller.sequence = 10**9
    assert controller.send(SessionState.MONITORING_READY) is None
    controller.sequence = 0
    assert controller.send(SessionState.MONITORING_READY) is not None
    assert controller.session.counts.sequence.lost == 0


@pytest.mark.parametrize("count", [6, 8])
def test_another_number_of_joints_is_refused(count):
    controller = Controller()
    assert controller.send(SessionState.MONITORING_READY, joint_count=count) is None
    assert f"an arm with {count} joints" in controller.session.counts.rejected
    assert controller.send(SessionState.MONITORING_READY, q=np.zeros(count)) is None
    assert controller.session.counts.malformed == 2
    assert controller.answer() is None


def test_commanding_without_an_interpolated_position_is_refused():
    """KUKA's own client aborts there."""
    controller = Controller()
    assert controller.send(SessionState.COMMANDING_WAIT, q_ipo=None) is None
    assert "no interpolated position" in controller.session.counts.rejected


def test_a_message_without_measurements_is_refused():
    controller = Controller()
    assert controller.send(SessionState.MONITORING_READY, tau=None) is None
    assert controller.send(SessionState.IDLE, tau=None, q=None) is not None


# What KUKA's own clients answered

GOLDEN = json.loads((Path(__file__).parent / "data" / "fri_golden.json").read_text())["datagrams"]
COMMANDS = [entry for entry in GOLDEN if entry["direction"] == "command"]
ACTIVE = SessionState.COMMANDING_ACTIVE
PUSH = np.array([1.0, -2.0, 3.0, 0.1, -0.2, 0.3])


def name_of(entry):
    return f"{entry['version']}-{entry['session']}-{entry['fields']['header']['sequenceCounter']}"


def message_before(entry):
    """The message that a recorded answer is about; where that was not recorded, the last of its state before it."""
    codec, counter = FriCodec(FriVersion(entry["version"])), entry["fields"]["header"]["reflectedSequenceCounter"]
    same = [
        codec.decode_monitoring(bytes.fromhex(one["hex"]))
        for one in GOLDEN
        if (one["version"], one["session"], one["direction"], one["state"])
        == (entry["version"], entry["session"], "monitoring", entry["state"])
    ]
    return max((one for one in same if one.sequence <= counter), key=lambda one: one.sequence)._replace(
        sequence=counter
    )


def reply(codec, message, number, *values):
    """Answer a message as the ``number``-th answer of a session, in its turn."""
    session = FriSession(codec)
    for before in reversed(range(message.receive_multiplier)):
        session.receive(codec.encode_monitoring(message._replace(sequence=message.sequence - before)))
    session._sequence = number
    return session.answer(*values)


@pytest.mark.parametrize("entry", COMMANDS, ids=name_of)
def test_every_recorded_answer_is_ours_byte_for_byte(entry):
    codec, recorded = FriCodec(FriVersion(entry["version"])), bytes.fromhex(entry["hex"])
    sent = codec.decode_command(recorded)
    assert reply(codec, message_before(entry), sent.sequence, sent.q, sent.tau, sent.wrench) == recorded


def packed(tag, content):
    return bytes([tag << 3 | 2, len(content)]) + content


@pytest.mark.parametrize("entry", [e for e in COMMANDS if e["state"].startswith("COMMANDING")], ids=name_of)
def test_in_wrench_mode_the_wrench_is_sent_and_nothing_else_before_it_acts(entry):
    """No client in wrench mode is among the recorded ones: the bytes are written by the table of the format."""
    version = FriVersion(entry["version"])
    codec, sent = FriCodec(version), entry["fields"]["header"]["sequenceCounter"]
    message = message_before(entry)._replace(command_mode=CommandMode.WRENCH)
    found = reply(codec, message, sent, Q, TAU, PUSH)
    is_active = message.state is ACTIVE
    position = b"".join(b"\x09" + struct.pack("<d", value) for value in (Q if is_active else message.q_ipo))
    wrench = packed(1, struct.pack("<6d", *(PUSH if is_active else np.zeros(6))))
    data = packed(2, packed(1, position) + packed(2, wrench))
    header = found[4:-4] if version is FriVersion.V2_7 else found
    assert header.endswith(data) and len(header) - len(data) == len(header[: header.index(data)]) <= 16
    assert codec.decode_command(found).tau is None
