"""Buffers that are reused from chunk to chunk: fresh arrays of this size cost more than the arithmetic in them."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CHUNK = 520
"""Samples handled at a time: hides the cost of a numpy call, takes about 8 MB for seven joints; no power of two, whose
strides collide in the cache."""


class Workspace:
    """Named float buffers. Not safe to share between threads: give each thread its own regressor object."""

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}
        self._zeroed: dict[str, Array] = {}

    def array(self, name: str, *shape: int) -> Array:
        """An array of this shape with arbitrary content, valid until the name is asked for again."""
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size)
        return buffer[:size].reshape(shape)

    def zeroed(self, name: str, *shape: int) -> Array:
        """An array whose entries are zero wherever the caller, always the same, never writes."""
        buffer = self._zeroed.get(name)
        if buffer is None or buffer.shape != shape:
            buffer = self._zeroed[name] = np.zeros(shape)
        return buffer


def chunks(samples: int) -> list[slice]:
    """Splits ``samples`` into consecutive slices of at most :data:`CHUNK`."""
    return [slice(start, min(start + CHUNK, samples)) for start in range(0, samples, CHUNK)]
