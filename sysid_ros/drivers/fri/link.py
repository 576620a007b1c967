"""The session on its socket: the newest message in, one answer out, and what went wrong on the way."""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.fri.codec import FriCodec
from sysid_ros.drivers.fri.enums import OperationMode
from sysid_ros.drivers.fri.messages import Monitoring
from sysid_ros.drivers.fri.session import FriSession
from sysid_ros.drivers.fri.settings import FriSettings
from sysid_ros.drivers.network.deadlines import ArrivalWatch
from sysid_ros.drivers.network.udp import UdpEndpoint

_REACTIONS = 2000
"""Times between a message and its answer that are kept."""
_UNKNOWN = "unknown"
"""What is reported where the message has no such field."""


class FriLink:
    """The connection of one client.

    Args:
        settings: Version of the controller.
        endpoint: Its socket.

    Attributes:
        session: What the client owes.
        arrivals: When messages came.
        skipped: Messages that were overtaken by the next one.
        late_answers: Answers that left later than a period after their message came.
        reactions: The latest times from message to answer [s].
    """

    def __init__(self, settings: FriSettings, endpoint: UdpEndpoint):
        self._endpoint = endpoint
        self.session = FriSession(FriCodec(settings.version))
        self.arrivals = ArrivalWatch()
        self.skipped = 0
        self.reactions: deque[float] = deque(maxlen=_REACTIONS)
        self._received = 0.0
        self._unsent = self.late_answers = 0
        self._is_answered = True

    def next(self, timeout: float) -> Monitoring | None:
        """Waits for the next usable message, then takes the newest there is; the ones it overtakes are counted.

        Args:
            timeout: Longest time to wait [s].

        Returns:
            The message; None if none came in time.
        """
        deadline = time.monotonic() + timeout
        message = self._newest()
        while message is None:
            datagram = self._endpoint.receive(deadline - time.monotonic())
            if datagram is None:
                return None
            message = self._newest(self.session.receive(datagram))
            if message is None and time.monotonic() > deadline:
                return None  # even where unusable datagrams keep coming
        self._is_answered = False
        self._received = time.monotonic()
        self.arrivals.note(message.send_period)
        return message

    def answer(self, q: Array | None = None, tau: Array | None = None) -> None:
        """Sends the one answer to the latest message, see :meth:`FriSession.answer`; does nothing the second time."""
        if self._is_answered:
            return
        self._is_answered = True
        datagram = self.session.answer(q, tau)
        if datagram is None:
            return
        if not self._endpoint.send(datagram):
            self._unsent += 1
        reaction = time.monotonic() - self._received
        self.reactions.append(reaction)
        self.late_answers += reaction > self.session.last.period

    @property
    def is_commanded(self) -> bool:
        """Whether the controller is in one of the commanding states."""
        return self.session.state.is_commanding

    def health(self) -> dict[str, object]:
        """Counters for diagnostics, by name."""
        counts, message = self.session.counts, self.session.last
        sequence = counts.sequence
        reactions = list(self.reactions) or [0.0]
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
            "messages overtaken": self.skipped,
            "messages malformed": counts.malformed,
            "controller restarts": sequence.restarts,
            "session fall-backs": counts.fallbacks,
            "commands sent": counts.answered,
            "commands not taken by the network": self._unsent,
            "datagrams of other hosts": self._endpoint.ignored,
            "longest time between messages [s]": self.arrivals.longest,
            "answers later than a period": self.late_answers,
            "reaction p50 [s]": float(np.quantile(reactions, 0.5)),
            "reaction p99 [s]": float(np.quantile(reactions, 0.99)),
            "reaction max [s]": max(reactions),
            "tracking performance": 0.0 if message is None else message.tracking_performance,
        }

    def describe_silence(self) -> str:
        """Why no usable message came, in words."""
        counts = self.session.counts
        if counts.malformed:
            return f"{counts.malformed} unusable datagrams, the latest: {counts.rejected}"
        if self._endpoint.ignored:
            return f"{self._endpoint.ignored} datagrams of other hosts were ignored"
        return f"nothing came at UDP port {self._endpoint.address[1]}"

    def close(self) -> None:
        """Closes the socket."""
        self._endpoint.close()

    def _newest(self, found: Monitoring | None = None) -> Monitoring | None:
        for datagram in self._endpoint.receive_all():
            message = self.session.receive(datagram)
            if message is not None:
                self.skipped += found is not None
                found = message
        return found


def _describe_controller(message: Monitoring | None) -> dict[str, object]:
    """What the latest message says of the controller's stops and modes, in words."""
    if message is None:
        return {}
    drives = (message.inactive_drives or "all active") if message.drives else _UNKNOWN
    named = {"safety state": message.safety, "control mode": message.control_mode}
    named["client command mode"] = message.command_mode
    modes = OperationMode._value2member_map_  # a number that is none of these is no reason to refuse the message
    named["operation mode"] = modes.get(message.operation_mode)
    return {"drives": drives} | {name: _UNKNOWN if one is None else one.name for name, one in named.items()}
