"""One piece of work, and one answer, for a request that comes more than once.

Where many requests come at once the middleware drops some, and answers too, so callers repeat unanswered requests
(:func:`sysid_ros.ros.waiting.call_service`). Long work, or a motion of an arm, must not be done twice for that.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rclpy.task import Future

LongCallback = Callable[[Any, Any], Awaitable[Any]]
"""``async`` callback of a service: request and response to response."""


@dataclass
class _Answer:
    """The shared answer to requests of one content."""

    conditions: object  # State it depends on besides the request
    response: Future[Any] = field(default_factory=Future)  # The answer, maybe still to come
    ends: float = math.inf  # Steady time from which the same request is a new one [s]


def share_repeats(
    callback: LongCallback,
    conditions: Callable[[], object] = lambda: None,
    memory: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> LongCallback:
    """Let requests of the very same content share the work that the first of them has begun, and its answer.

    Args:
        callback: Does the work; its response says in ``success`` whether it did, where there is a ``memory``.
        conditions: State an answer depends on besides its request; once it has changed, the work is done anew.
        memory: For how long after a success the same answer is given again [s]: a repetition may be on its way still.
        clock: Steady time [s].

    Returns:
        The callback to offer; see :func:`sysid_ros.ros.node.create_long_service`.
    """
    answers: dict[object, _Answer] = {}

    async def answer(request: Any, response: Any) -> Any:
        for old in [key for key, one in answers.items() if one.ends <= clock()]:
            del answers[old]
        key, now = _content_of(request), conditions()
        known = answers.get(key)
        if known is not None and known.conditions == now:
            return await known.response
        own = answers[key] = _Answer(now)
        try:
            response = await callback(request, response)
        except Exception as error:
            own.ends = -math.inf
            own.response.set_exception(error)
            raise
        own.ends = clock() + memory if memory and response.success else -math.inf
        own.response.set_result(response)
        return response

    return answer


def _content_of(value: Any) -> object:
    """Return all that a message holds, to be compared: its serialization has padding, which may be anything."""
    if hasattr(value, "get_fields_and_field_types"):
        return tuple(_content_of(getattr(value, name)) for name in value.get_fields_and_field_types())
    if isinstance(value, np.ndarray | array):
        return value.tobytes()
    if isinstance(value, list | tuple):
        return tuple(map(_content_of, value))
    return repr(value) if isinstance(value, float) else value  # NaN is like NaN here
