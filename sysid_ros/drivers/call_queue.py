"""Calls into an object that belongs to one thread, from other threads."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


class CallQueue:
    """Functions that other threads want the owner of an object to carry out, at a time that suits it."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[Future, Callable[[], object]]] = queue.SimpleQueue()

    def call(self, function: Callable[[], Result], seconds: float = 60.0) -> Result:
        """Has a function carried out by the owner; for any other thread.

        Args:
            function: What to do.
            seconds: How long to wait for it at most [s].

        Returns:
            What the function returns; what it raises is raised here.

        Raises:
            concurrent.futures.TimeoutError: The owner did not come to it in time. It may still do so.
        """
        future: Future = Future()
        self._waiting.put((future, function))
        return future.result(seconds)

    def work(self) -> None:
        """Carries out what is waiting; for the owner."""
        while not self._waiting.empty():
            future, function = self._waiting.get()
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)
