"""The client's side of the session: states, mirror rules, counters, receive multiplier."""

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
        state, Q, TAU, command_mode=mode if is_commanding else CommandMode.NO_COMMAND
    )  # fmt: skip
    if state is SessionState.IDLE:
        assert answer is None
        return
    mirror = COMMANDED if version is FriVersion.V1_15 else None
    assert same(answer.q, Q if is_active else IPO if is_commanding else mirror)
    has_torque = is_commanding and mode is CommandMode.TORQUE
    assert same(answer.tau, (TAU if is_active else np.zeros(7)) if has_torque else None)
    assert same(answer.wrench, np.zeros(6) if is_commanding and mode is CommandMode.WRENCH else None)


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
