"""The session on its socket: the newest message in, one answer out, and counts of faults."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from enum import Enum

import numpy as np

from sysid_ros.drivers.arm import REFUSALS, Array
from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.messages import (
    JOINTS,
    Command,
    CommandMode,
    Monitoring,
    OperationMode,
    Quality,
    SessionState,
)
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.drivers.network import (
    Arrival,
    ArrivalMonitor,
    InvalidFrame,
    SequenceCounts,
    SequenceMonitor,
    UdpEndpoint,
)

SEQUENCE_MODULUS = 1 << 32
"""Counters of messages begin again at 0 there."""


@dataclass
class SessionCounts:
    """Counts of a session."""

    sequence: SequenceCounts
    """Lost, repeated and late messages."""
    malformed: int = 0
    """Unusable datagrams."""
    answered: int = 0
    """Commands sent."""
    fallbacks: int = 0
    """Times the controller ended COMMANDING_ACTIVE."""
    rejected: str | None = None
    """Fault of the latest refused datagram; None without any."""
    first_rejected: str | None = None


class FriSession:
    """One client of one controller, both of the same version; with ``counts`` and the ``last`` message."""

    def __init__(self, codec: FriCodec):
        self._codec = codec
        self._sequences = SequenceMonitor()
        self._sequence = self._since_answer = 0
        self.counts = SessionCounts(self._sequences.counts)
        self.last: Monitoring | None = None

    @property
    def state(self) -> SessionState:
        """State of the session; IDLE before the first message."""
        return SessionState.IDLE if self.last is None else self.last.state

    @property
    def quality(self) -> Quality:
        """Quality of the connection; POOR before the first message."""
        return Quality.POOR if self.last is None else self.last.quality

    def receive(self, datagram: bytes) -> Monitoring | None:
        """Decode a datagram.

        Returns:
            The message; None if it is unusable, repeated or late, and must have no effect.
        """
        try:
            message = self._codec.decode_monitoring(datagram)
            _require_consistent(message, len(datagram))
        except InvalidFrame as error:
            self.counts.malformed += 1
            self.counts.rejected = str(error)
            self.counts.first_rejected = self.counts.first_rejected or str(error)
            return None
        arrival = self._sequences.judge(message.sequence)
        if arrival is Arrival.OLD:
            return None
        if arrival is Arrival.RESTART:
            self._since_answer = 0
        if self.state is SessionState.COMMANDING_ACTIVE and message.state is not SessionState.COMMANDING_ACTIVE:
            self.counts.fallbacks += 1
        self.last = message
        self._since_answer = 0 if message.state is SessionState.IDLE else self._since_answer + 1
        return message

    @property
    def is_answer_due(self) -> bool:
        """Whether the latest message has to be answered: every receive_multiplier-th, none in IDLE."""
        message = self.last
        return message is not None and 0 < message.receive_multiplier <= self._since_answer

    def answer(self, q: Array | None = None, tau: Array | None = None, wrench: Array | None = None) -> bytes | None:
        """Return the answer to the latest message, to be sent at once.

        Args:
            q: Positions to send in COMMANDING_ACTIVE, (7,) [rad]; the interpolated ones if None.
            tau: Torques to send in COMMANDING_ACTIVE with torque mode, (7,) [Nm]; zero if None. In all other states and
                modes no torque, or zero, leaves this function.
            wrench: Force and torque to send in COMMANDING_ACTIVE with wrench mode, (6,) [N, Nm]; likewise.

        Returns:
            The datagram; None where the client must not answer.
        """
        message = self.last
        if message is None or not self.is_answer_due:
            return None
        self._since_answer = 0
        is_active = message.state is SessionState.COMMANDING_ACTIVE
        position = torque = force = None
        if message.state.is_commanding:
            position = q if is_active and q is not None else message.q_ipo
            if message.command_mode is CommandMode.TORQUE:
                torque = tau if is_active and tau is not None else np.zeros(JOINTS)
            elif message.command_mode is CommandMode.WRENCH:
                force = wrench if is_active and wrench is not None else np.zeros(6)
        elif self._codec.version is FriVersion.V1_15:
            position = message.q_commanded
        command = Command(self._sequence, message.sequence, position, torque, force)
        self._sequence = (self._sequence + 1) % SEQUENCE_MODULUS
        self.counts.answered += 1
        return self._codec.encode_command(command)


def is_message(codec: FriCodec, datagram: bytes) -> bool:
    """Return whether a datagram is a message of a controller; the first one identifies it."""
    try:
        _require_consistent(codec.decode_monitoring(datagram), len(datagram))
    except InvalidFrame:
        return False
    return True


def _require_consistent(message: Monitoring, size: int) -> None:
    if message.state is SessionState.IDLE:
        return
    if message.q is None or message.tau is None:
        raise InvalidFrame("no measured position or torque", size)
    if message.state.is_commanding and message.q_ipo is None:
        raise InvalidFrame(f"no interpolated position in {message.state.name}", size)


PEER_SILENCE = 1.0
"""A controller without a usable message for so long may return with another port [s]."""
_UNKNOWN = "unknown"
"""Reported value of a field that the message does not have."""


class FriLink:
    """The connection of one client: its session, times of arrival, and answers that left too late."""

    def __init__(self, settings: FriSettings, endpoint: UdpEndpoint):
        self._endpoint = endpoint
        self.session, self.arrivals = FriSession(FriCodec(settings.version)), ArrivalMonitor()
        self._reactions: deque[float] = deque(maxlen=2000)  # the latest times from message to answer [s]
        self._unsent = self._skipped = self.late_answers = 0
        self._is_answered = True

    def next(self, timeout: float) -> Monitoring | None:
        """Wait for the next usable message, at most for a timeout [s], then take the newest one; count overtaken ones.

        Returns:
            The message; None if none came in time.
        """
        deadline = time.monotonic() + timeout
        message = self._newest()
        while message is None:
            datagram = self._endpoint.receive(deadline - time.monotonic())
            if datagram is None:
                if self.arrivals.age > PEER_SILENCE:
                    self._endpoint.forget_peer()
                return None
            message = self._newest(self.session.receive(datagram))
            if message is None and time.monotonic() > deadline:
                return None  # even where unusable datagrams keep coming
        self._is_answered = False
        self.arrivals.note(message.send_period)
        return message

    def answer(self, q: Array | None = None, tau: Array | None = None, wrench: Array | None = None) -> None:
        """Send the one answer to the latest message, see :meth:`FriSession.answer`; do nothing the second time."""
        if self._is_answered:
            return
        self._is_answered = True
        datagram = self.session.answer(q, tau, wrench)
        if datagram is None:
            return
        if not self._endpoint.send(datagram):
            self._unsent += 1
        reaction = self.arrivals.age
        self._reactions.append(reaction)
        message = self.session.last
        self.late_answers += message is not None and reaction > message.period

    def health(self) -> dict[str, object]:
        """Counters for diagnostics, by name."""
        counts, message = self.session.counts, self.session.last
        sequence, others = counts.sequence, self._endpoint.first_ignored
        reactions = list(self._reactions) or [0.0]
        refused = []  # a sentence for each kind, about the first of it; they do not change
        if others is not None:
            refused.append(f"datagrams of {others[0]}:{others[1]}: who sends them is not the controller of the session")
        if counts.first_rejected is not None:
            refused.append(f"a datagram that is no message of an FRI controller: {counts.first_rejected}")
        if sequence.duplicated or sequence.late:
            refused.append("a message that was repeated, or is older than the last: its counter has been used")
        return {
            "session state": self.session.state.name,
            "connection quality": self.session.quality.name,
            **_describe_controller(message),
            "send period [s]": 0.0 if message is None else message.send_period,
            "messages received": sequence.received,
            "messages lost": sequence.lost,
            "sequence gaps": sequence.gaps,
            "messages duplicated": sequence.duplicated,
            "messages out of order": sequence.late,
            "messages late": self.arrivals.late,
            "messages overtaken": self._skipped,
            "messages malformed": counts.malformed,
            "controller restarts": sequence.restarts,
            "session fall-backs": counts.fallbacks,
            "commands sent": counts.answered,
            "commands not taken by the network": self._unsent,
            "datagrams of others": self._endpoint.ignored,
            REFUSALS: tuple(refused),
            "longest time between messages [s]": self.arrivals.longest,
            "answers later than a period": self.late_answers,
            "reaction p50 [s]": float(np.quantile(reactions, 0.5)),
            "reaction p99 [s]": float(np.quantile(reactions, 0.99)),
            "reaction max [s]": max(reactions),
            "tracking performance": 0.0 if message is None else message.tracking_performance,
        }

    def describe_timeout(self) -> str:
        """Why no usable message came, in words."""
        counts = self.session.counts
        if counts.malformed:
            return f"{counts.malformed} unusable datagrams, the latest: {counts.rejected}"
        if self._endpoint.ignored:
            return f"{self._endpoint.ignored} datagrams of other hosts or ports were ignored"
        return f"no message at UDP port {self._endpoint.address[1]}"

    def close(self) -> None:
        """Close the socket."""
        self._endpoint.close()

    def _newest(self, found: Monitoring | None = None) -> Monitoring | None:
        for datagram in self._endpoint.receive_all():
            message = self.session.receive(datagram)
            if message is not None:
                self._skipped += found is not None
                found = message
        return found


def _describe_controller(message: Monitoring | None) -> dict[str, object]:
    if message is None:
        return {}
    drives = (message.inactive_drives or "all active") if message.drives else _UNKNOWN
    named: dict[str, Enum | None] = {"safety state": message.safety, "control mode": message.control_mode}
    named["client command mode"] = message.command_mode
    modes = OperationMode._value2member_map_  # a number that is none of these is no reason to refuse the message
    named["operation mode"] = modes.get(message.operation_mode)
    return {"drives": drives, **{name: _UNKNOWN if one is None else one.name for name, one in named.items()}}
