"""Ctrl-C as a request that work can heed between its steps, so that nothing that was found is lost."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from types import FrameType
from typing import Any


@dataclass
class Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP instead of breaking whatever is being done.

    Attributes:
        patience: Signals that are only counted; the next one raises ``KeyboardInterrupt``. None counts all.
        count: Signals so far.
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
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.number = self.number or number
        if self.patience is not None and self.count > self.patience:
            raise KeyboardInterrupt
