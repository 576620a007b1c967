"""The client's side of a session: which messages count, which are answered, and with what. No sockets, no clock.

What the client owes in each state (x: sent):

| state | 1.x | 2.x |
|---|---|---|
| IDLE | nothing | nothing |
| MONITORING_WAIT, MONITORING_READY | commanded position, mirrored | header only |
| COMMANDING_WAIT | interpolated position, mirrored; zero torque or wrench where the mode is that | the same |
| COMMANDING_ACTIVE | position; torque or wrench where the mode is that | the same |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.fri.codec import FriCodec
from sysid_ros.drivers.fri.enums import JOINTS, CommandMode, Quality, SessionState
from sysid_ros.drivers.fri.errors import FriDecodeError
from sysid_ros.drivers.fri.messages import Command, Monitoring
from sysid_ros.drivers.network.counters import Arrival, SequenceCounts, SequenceWatch

SEQUENCE_MODULUS = 1 << 32
"""Counters of messages begin again at 0 there."""


@dataclass(frozen=True)
class SessionCounts:
    """What has happened in a session so far.

    Attributes:
        sequence: Lost, repeated and late messages.
        malformed: Datagrams that were no usable message.
        answered: Commands sent.
        fallbacks: Times the controller ended COMMANDING_ACTIVE.
        rejected: The latest reason a datagram was refused; empty if none was.
    """

    sequence: SequenceCounts
    malformed: int
    answered: int
    fallbacks: int
    rejected: str


class FriSession:
    """One client of one controller.

    Args:
        codec: Version of both.
    """

    def __init__(self, codec: FriCodec):
        self._codec = codec
        self._watch = SequenceWatch()
        self._sequence = 0
        self._since_answer = 0
        self._events: Counter[str] = Counter()
        self._rejected = ""
        self.last: Monitoring | None = None

    @property
    def state(self) -> SessionState:
        """State of the session; IDLE before the first message."""
        return SessionState.IDLE if self.last is None else self.last.state

    @property
    def quality(self) -> Quality:
        """Quality of the connection; POOR before the first message."""
        return Quality.POOR if self.last is None else self.last.quality

    @property
    def counts(self) -> SessionCounts:
        """What has happened so far."""
        events = self._events
        return SessionCounts(
            self._watch.counts, events["malformed"], events["answered"], events["fallbacks"], self._rejected
        )

    def receive(self, datagram: bytes) -> Monitoring | None:
        """Takes a datagram.

        Returns:
            The message; None if it is unusable, repeated or late, in which case nothing must come of it.
        """
        try:
            message = self._codec.decode_monitoring(datagram)
            _require_consistent(message, len(datagram))
        except FriDecodeError as error:
            self._events["malformed"] += 1
            self._rejected = str(error)
            return None
        arrival = self._watch.judge(message.sequence)
        if arrival is Arrival.OLD:
            return None
        if arrival is Arrival.RESTART:
            self._since_answer = 0
        if self.state is SessionState.COMMANDING_ACTIVE and message.state is not SessionState.COMMANDING_ACTIVE:
            self._events["fallbacks"] += 1
        self.last = message
        if message.state is SessionState.IDLE:
            self._since_answer = 0
        else:
            self._since_answer += 1
        return message

    @property
    def is_answer_due(self) -> bool:
        """Whether the latest message is one that is answered: every receive_multiplier-th, none in IDLE."""
        message = self.last
        return message is not None and 0 < message.receive_multiplier <= self._since_answer

    def answer(self, q: Array | None = None, tau: Array | None = None) -> bytes | None:
        """The answer to the latest message, to be sent at once.

        Args:
            q: Positions to send in COMMANDING_ACTIVE, (7,) [rad]; the interpolated ones if None.
            tau: Torques to send in COMMANDING_ACTIVE with torque mode, (7,) [Nm]; zero if None. In all other states and
                modes no torque, or zero, leaves this function.

        Returns:
            The datagram; None where the client has to be silent.
        """
        message = self.last
        if message is None or not self.is_answer_due:
            return None
        self._since_answer = 0
        is_active = message.state is SessionState.COMMANDING_ACTIVE
        position = torque = wrench = None
        if message.state.is_commanding:
            position = q if is_active and q is not None else message.q_ipo
            if message.command_mode is CommandMode.TORQUE:
                torque = tau if is_active and tau is not None else np.zeros(JOINTS)
            elif message.command_mode is CommandMode.WRENCH:
                wrench = np.zeros(6)
        elif self._codec.version.mirrors_in_monitoring:
            position = message.q_commanded
        command = Command(self._sequence, message.sequence, position, torque, wrench)
        self._sequence = (self._sequence + 1) % SEQUENCE_MODULUS
        self._events["answered"] += 1
        return self._codec.encode_command(command)


def _require_consistent(message: Monitoring, size: int) -> None:
    """Checks that a message has what its state promises.

    Raises:
        FriDecodeError: It has not.
    """
    if message.state is SessionState.IDLE:
        return
    if message.q is None or message.tau is None:
        raise FriDecodeError("no measured position or torque", size)
    if message.state.is_commanding and message.q_ipo is None:
        raise FriDecodeError(f"no interpolated position in {message.state.name}", size)
