"""The thread in which a relay runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TypeVar

R = TypeVar("R", bound="RelayThread")

LONGEST_SLEEP = 0.02
"""How long a relay waits at most for something to do [s]."""


class RelayThread(ABC):
    """Relays in a thread of its own between :meth:`start` and :meth:`stop`.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str):
        self._name = name
        self._is_running = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to relay."""
        self._is_running.set()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and closes the sockets."""
        self._is_running.clear()
        if self._thread is not None:
            self._thread.join()
        self._close()

    def __enter__(self: R) -> R:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _run(self) -> None:
        while self._is_running.is_set():
            self._relay_once()

    @abstractmethod
    def _relay_once(self) -> None:
        """Waits a little while for something to do, and does it."""

    @abstractmethod
    def _close(self) -> None:
        """Closes the sockets."""
