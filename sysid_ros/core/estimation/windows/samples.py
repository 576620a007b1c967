"""Measured samples of an arm in blocks, and velocities from measured positions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import SysidError

Array = NDArray[np.float64]

_FIELDS = ("stamps", "sequence", "q", "v", "tau")


class InvalidSamples(SysidError):
    """A block of samples that cannot be used.

    Args:
        field: Field at fault (``stamps``, ``q`` ...).
        reason: The fault, its place and the allowed values.
    """

    def __init__(self, field: str, reason: str):
        self.field = field
        self.reason = reason
        super().__init__(f"samples: {field} {reason}")


@dataclass(frozen=True)
class Wrenches:
    """Measured wrenches of a wrist sensor.

    Attributes:
        stamps: (N,) [ns].
        values: Forces [N] and moments [Nm] in the sensor's frame, (N, 6).
    """

    stamps: NDArray[np.int64]
    values: Array


@dataclass(frozen=True)
class SampleBlock:
    """N consecutive samples of an arm with n joints; the arrays are read-only copies.

    Attributes:
        stamps: Time stamps, strictly increasing, (N,) int64 [ns since the epoch of the loop's clock].
        sequence: Sample counter of the source, strictly increasing, (N,) int64; a jump means lost samples.
        q: Joint positions, (N, n) [rad].
        v: Joint velocities, (N, n) [rad/s].
        tau: Joint torques in joint direction (the robot's ``effort_sign`` already applied), (N, n) [Nm].

    Raises:
        InvalidSamples: Shapes differ, a value is not finite, or stamps or counters do not increase. Use
            :func:`split_into_blocks` on raw data that may have such faults.
    """

    stamps: NDArray[np.int64]
    sequence: NDArray[np.int64]
    q: Array
    v: Array
    tau: Array

    def __post_init__(self) -> None:
        for name in ("stamps", "sequence"):
            values = np.asarray(getattr(self, name))
            if values.ndim != 1 or not (values.size == 0 or np.issubdtype(values.dtype, np.integer)):
                raise InvalidSamples(
                    name, f"must be integers of shape (N,), got {values.dtype} of shape {values.shape}"
                )
            object.__setattr__(self, name, _frozen(values, np.int64))
        for name in ("q", "v", "tau"):
            object.__setattr__(self, name, _frozen(getattr(self, name), np.float64))
        self._check_shapes()
        self._check_values()

    def _check_shapes(self) -> None:
        if self.q.ndim != 2:
            raise InvalidSamples("q", f"must have shape (N, n), got {self.q.shape}")
        count = self.q.shape[0]
        for name, expected in (
            ("stamps", (count,)),
            ("sequence", (count,)),
            ("v", self.q.shape),
            ("tau", self.q.shape),
        ):
            shape = getattr(self, name).shape
            if shape != expected:
                raise InvalidSamples(name, f"has shape {shape}, but q has shape {self.q.shape}")

    def _check_values(self) -> None:
        for name in ("q", "v", "tau"):
            finite = np.isfinite(getattr(self, name))
            if not finite.all():
                bad = np.argwhere(~finite)
                raise InvalidSamples(name, f"is not finite at sample {bad[0, 0]}, joint {bad[0, 1]} (counted from 0)")
        for name in ("stamps", "sequence"):
            values = getattr(self, name)
            late = np.flatnonzero(values[1:] <= values[:-1])
            if late.size:
                k = int(late[0])
                raise InvalidSamples(name, f"must increase, but entry {k + 1} is {values[k + 1]} after {values[k]}")

    def __len__(self) -> int:
        """Return the number of samples N."""
        return int(self.stamps.size)

    @property
    def n(self) -> int:
        """Number of joints."""
        return int(self.q.shape[1])

    @property
    def seconds(self) -> Array:
        """Time since the first sample, (N,) [s]."""
        return (self.stamps - self.stamps[:1]).astype(float) * 1e-9

    def slice(self, start: int | None = None, stop: int | None = None) -> SampleBlock:
        """Return the samples ``start`` (included) to ``stop`` (excluded), with Python's rules for both."""
        part = slice(start, stop)
        return SampleBlock._of_valid(*(getattr(self, name)[part] for name in _FIELDS))

    @classmethod
    def _of_valid(cls, *arrays: NDArray[Any]) -> SampleBlock:
        """Make a block of valid arrays, such as slices of a block, without checks."""
        block = object.__new__(cls)
        for name, array in zip(_FIELDS, arrays, strict=True):
            object.__setattr__(block, name, array)
        return block

    @classmethod
    def empty(cls, n: int) -> SampleBlock:
        """Return a block without samples for n joints."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none, np.zeros((0, n)), np.zeros((0, n)), np.zeros((0, n)))

    @classmethod
    def concatenate(cls, blocks: Sequence[SampleBlock]) -> SampleBlock:
        """Join blocks that follow each other in time.

        Raises:
            InvalidSamples: No block given, joint counts differ, or the blocks overlap in time or counter.
        """
        if not blocks:
            raise InvalidSamples("blocks", "are none; at least one is needed")
        if len({block.n for block in blocks}) > 1:
            raise InvalidSamples("q", f"has different joint counts: {sorted({block.n for block in blocks})}")
        full = [block for block in blocks if len(block)]
        if len(full) < 2:
            return full[0] if full else blocks[0]
        for before, after in itertools.pairwise(full):
            for name in ("stamps", "sequence"):
                last, first = getattr(before, name)[-1], getattr(after, name)[0]
                if first <= last:
                    raise InvalidSamples(name, f"must increase, but a block begins with {first} after {last}")
        arrays = [np.concatenate([getattr(block, name) for block in full]) for name in _FIELDS]
        for array in arrays:
            array.setflags(write=False)
        return cls._of_valid(*arrays)


def split_into_blocks(
    stamps: ArrayLike, sequence: ArrayLike, q: ArrayLike, v: ArrayLike, tau: ArrayLike
) -> tuple[list[SampleBlock], list[str]]:
    """Cut raw data, which may hold faulty samples, into valid blocks in the order of arrival.

    A sample with a value that is not finite is left out (its missing counter ends a window later on). Where a stamp or
    counter does not increase a new block starts; the receiver of the blocks decides whether the sample is late, a
    duplicate or the first after a restart.

    Args:
        stamps: (N,) [ns].
        sequence: (N,) counters.
        q: (N, n) [rad].
        v: (N, n) [rad/s].
        tau: (N, n) [Nm].

    Returns:
        The blocks, and one sentence for each kind of fault (none for good data).

    Raises:
        InvalidSamples: The shapes do not fit.
    """
    times, counters = np.asarray(stamps, dtype=np.int64), np.asarray(sequence, dtype=np.int64)
    values = [np.asarray(array, dtype=float) for array in (q, v, tau)]
    for name, array in zip(("q", "v", "tau"), values, strict=True):
        if array.shape != values[0].shape or array.ndim != 2 or len(array) != times.size or counters.size != times.size:
            raise InvalidSamples(
                name, f"has shape {array.shape}, with {times.size} stamps and {counters.size} counters"
            )
    finite = np.all([np.isfinite(array).all(axis=1) for array in values], axis=0)
    notices = []
    if not finite.all():
        bad = np.flatnonzero(~finite)
        notices.append(f"{bad.size} samples with values that are not finite left out, first counter {counters[bad[0]]}")
    times, counters, values = times[finite], counters[finite], [array[finite] for array in values]
    cuts = np.flatnonzero((times[1:] <= times[:-1]) | (counters[1:] <= counters[:-1])) + 1
    edges = [0, *cuts.tolist(), times.size]
    blocks = [
        SampleBlock(times[a:b], counters[a:b], *(array[a:b] for array in values))
        for a, b in itertools.pairwise(edges)
        if b > a
    ]
    return blocks, notices


def _frozen(values: ArrayLike, dtype: type) -> NDArray[Any]:
    array: NDArray[Any] = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array
