"""What the driver needs of a connection to the base, whoever speaks the protocol."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from sysid_ros.drivers.kinova_kortex.enums import ArmState, ControlMode, KortexConnectionLost, ServoingMode
from sysid_ros.drivers.kinova_kortex.messages import Command, Feedback

T = TypeVar("T")
_KEPT = 2000
"""Round trips that are kept for statistics."""


class Call(ABC, Generic[T]):
    """A request over TCP that is under way.

    Attributes:
        name: What was asked.
    """

    name: str

    @abstractmethod
    def is_done(self) -> bool:
        """Whether the answer is there. Does not wait."""

    @abstractmethod
    def result(self) -> T:
        """The answer.

        Raises:
            KortexServerError: The base refused.
            KortexConnectionLost: There will be none.
        """


class CyclicCounts:
    """What happened to the requests of the cyclic service.

    Attributes:
        sent: Requests.
        answered: Replies that came in time.
        missed: Requests without one.
        late: Replies that came after their cycle, repeated ones among them.
        malformed: Datagrams that were no reply.
        rejected: Why the latest of them was not.
        unsent: Requests the network did not take.
        round_trips: The latest times from request to reply [s].
        shortest: Shortest of all [s].
    """

    def __init__(self) -> None:
        self.sent = self.answered = self.missed = self.late = self.malformed = self.unsent = 0
        self.rejected = ""
        self.round_trips: deque[float] = deque(maxlen=_KEPT)
        self.shortest = float("inf")

    def note(self, seconds: float) -> None:
        """Notes the time of one round trip [s]."""
        self.answered += 1
        self.round_trips.append(seconds)
        self.shortest = min(self.shortest, seconds)

    def report(self) -> dict[str, object]:
        """The same by name."""
        times = np.array(self.round_trips or [0.0])
        return {
            "requests sent": self.sent,
            "replies": self.answered,
            "replies missing": self.missed,
            "replies late or repeated": self.late,
            "datagrams malformed": self.malformed,
            "requests not taken by the network": self.unsent,
            "round trip p50 [s]": float(np.quantile(times, 0.5)),
            "round trip p99 [s]": float(np.quantile(times, 0.99)),
            "round trip max [s]": float(times.max()),
        }


class KortexLink(ABC):
    """Both sessions with one base.

    Attributes:
        counts: What happened to cyclic requests.
        sent_at: When the last cyclic request was sent [s of the monotonic clock].
    """

    counts: CyclicCounts
    sent_at: float

    @abstractmethod
    def open(self) -> None:
        """Connects both transports and opens a session on each.

        Raises:
            KortexConnectionLost: The base cannot be reached.
            KortexServerError: It refuses, because of user or password for instance.
        """

    @abstractmethod
    def clear_faults(self) -> Call[None]:
        """Asks the base to clear its faults and those of its actuators."""

    @abstractmethod
    def set_servoing_mode(self, mode: ServoingMode) -> Call[None]:
        """Asks the base for another way of servoing."""

    @abstractmethod
    def set_control_mode(self, mode: ControlMode, device: int) -> Call[None]:
        """Asks one actuator to follow something else."""

    @abstractmethod
    def count_actuators(self) -> Call[int]:
        """Asks how many actuators there are."""

    @abstractmethod
    def find_actuators(self) -> Call[tuple[int, ...]]:
        """Asks for the device ids of the actuators, in ascending order: from the base to the flange."""

    @abstractmethod
    def ask_arm_state(self) -> Call[ArmState]:
        """Asks for the state of the arm."""

    @abstractmethod
    def refresh(self, command: Command | None, timeout: float) -> Feedback | None:
        """One cyclic exchange.

        Args:
            command: What to do; None only asks for feedback.
            timeout: Longest time to wait for the reply [s].

        Returns:
            The reply to this very request; None if none came in time.

        Raises:
            KortexServerError: The base refused, because it has left low-level servoing for instance.
        """

    @abstractmethod
    def keep_alive(self) -> None:
        """Keeps the TCP session alive; to be called in every cycle, does not wait."""

    @property
    @abstractmethod
    def silence(self) -> float:
        """How long the TCP session has not answered although it was asked [s]; 0 where nothing is owed."""

    @property
    def broken(self) -> str:
        """Why there is no TCP connection any more; empty where it stands, or nothing is known."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Closes both sessions and transports. Never raises."""


def wait_for(call: Call[T], seconds: float, meanwhile: Callable[[float], None]) -> T:
    """Waits for the answer to a call.

    Args:
        call: The call.
        seconds: Longest time [s].
        meanwhile: Done again and again while waiting; takes the time it may spend [s].

    Returns:
        The answer.

    Raises:
        KortexServerError: The base refused.
        KortexConnectionLost: No answer came.
    """
    deadline = time.monotonic() + seconds
    while not call.is_done():
        remaining = deadline - time.monotonic()
        if remaining <= 0.0:
            raise KortexConnectionLost(f"no answer to {call.name} for {seconds:g} s")
        meanwhile(remaining)
    return call.result()
