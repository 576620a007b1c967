"""Ctrl-C as a request that work polls between its steps, so that no result is lost and no arm is left moving."""

from __future__ import annotations

import atexit
import signal
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP instead of interrupting the work.

    One press of Ctrl-C reaches a launched process twice, from the terminal and from the launcher, and people press it
    again: for a node all of them are one request, and only SIGKILL ends it before the arm is at rest.

    Attributes:
        patience: Signals that are only counted; the next one raises ``KeyboardInterrupt``. None counts all.
        count: Signals so far, including earlier counts in this process.
        number: The first of them; 0 before.
    """

    patience: int | None = None
    count: int = 0
    number: int = 0
    _previous: dict[int, Any] = field(default_factory=dict)

    @property
    def is_set(self) -> bool:
        """Whether a signal has come."""
        return self.count > 0

    def __enter__(self) -> Interrupts:
        for number in _NUMBERS:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup
            previous = self._previous[number] = signal.signal(number, self._handle)
            before = getattr(previous, "__self__", None)
            if isinstance(before, Interrupts):
                self.count, self.number = max(self.count, before.count), self.number or before.number
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.number = self.number or number
        if self.patience is not None and self.count > self.patience:
            raise KeyboardInterrupt


def hold_signals() -> None:
    """Count signals from now until this process has ended, also while it loads and while it is torn down.

    What enters :class:`Interrupts` later finds them. Python resets handlers of its own before it is gone, so at the
    end signals are ignored.
    """
    Interrupts().__enter__()
    atexit.register(lambda: [signal.signal(number, signal.SIG_IGN) for number in _NUMBERS])
