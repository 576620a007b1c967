"""Communication between the loop and its parent: messages over a socket pair, samples in a ring of shared memory.

Calls do not block unless they say so. The memory has no name in any file system: it lives as long as one of the two
processes, however they end. The writer never waits; a reader that is too slow loses the oldest samples and receives
their number.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import socket
import struct
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.loop_types import LoopSample

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16


class Outcome(Enum):
    """The outcome of a call to the other process."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class Channel:
    """One end of a socket pair that carries Python objects; it owns the socket."""

    def __init__(self, end: socket.socket):
        end.setblocking(False)
        self._socket = end
        self._readable = select.poll()
        self._readable.register(end, select.POLLIN)
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def send(self, message: object) -> None:
        """Queue a message and send as much as fits; :meth:`flush` sends the rest.

        Raises:
            EOFError: The other end is gone.
        """
        body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._outgoing += _LENGTH.pack(len(body)) + body
        self.flush()

    def flush(self) -> bool:
        """Send as much as fits into the socket, and return whether everything has been sent.

        Raises:
            EOFError: The other end is gone.
        """
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing[:_CHUNK])
            except BlockingIOError:
                return False
            except OSError as error:
                raise EOFError("the other end of the channel is closed") from error
            del self._outgoing[:sent]
        return True

    def poll(self) -> list[Any]:
        """Return the complete messages that have arrived, without waiting.

        Raises:
            EOFError: The other end is gone and all its messages have been read.
        """
        if not self._readable.poll(0):
            return []
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            raise EOFError("the other end of the channel is closed") from error
        if not data:
            raise EOFError("the other end of the channel is closed")
        buffer, messages = self._incoming, []
        buffer += data
        while len(buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
            if len(buffer) < end:
                break
            body = bytes(buffer[_LENGTH.size : end])
            del buffer[:end]  # first: an unreadable message must not keep out all later ones
            messages.append(pickle.loads(body))
        return messages

    def wait(self, timeout: float) -> list[Any]:
        """Return the next messages, after waiting for at most ``timeout`` [s]; none if there were none.

        Raises:
            EOFError: The other end is gone.
        """
        deadline = time.monotonic() + timeout
        while True:
            messages = self.poll()
            remaining = deadline - time.monotonic()
            if messages or remaining <= 0.0:
                return messages
            self._readable.poll(1000.0 * remaining)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


@dataclass(frozen=True)
class LoopSamples:
    """Consecutive usable samples of the loop: measured, desired and sent, (N, n), and the modes of the loop, (N,)."""

    block: SampleBlock
    """Stamps, counters and measurements of N cycles; cycles without a usable measurement are missing."""
    q_d: Array
    v_d: Array
    a_d: Array
    tau_command: Array
    modes: NDArray[np.int64]
    dropped: int
    """Cycles lost since the start because they were read too late."""


def collect_samples(samples: Sequence[LoopSample], n: int) -> LoopSamples:
    """Collect the usable samples of :meth:`ControlLoop.step`, of an arm with n joints."""
    usable = [sample for sample in samples if sample.ok and np.isfinite(sample.tau).all()]
    integers = np.array([(one.stamp_ns, one.sequence, one.mode) for one in usable], dtype=np.int64).reshape(-1, 3)
    vectors = np.array([one[3:10] for one in usable], dtype=float).reshape(-1, _VECTORS, n)
    return _join(integers.T, vectors, 0)


def _join(integers: Iterable[NDArray[np.int64]], vectors: Array, dropped: int) -> LoopSamples:
    """Join stamps, counters and modes, (N,) each, with the vectors of N samples, (N, 7, n)."""
    stamps, sequence, modes = integers
    q, v, tau, q_d, v_d, a_d, tau_command = vectors.transpose(1, 0, 2)
    return LoopSamples(SampleBlock(stamps, sequence, q, v, tau), q_d, v_d, a_d, tau_command, modes, dropped)


_HEADER = 8
_INDEX, _SEQUENCE, _STAMP, _OK, _MODE, _PERIOD, _COMPUTE = range(7)
_INTEGERS = 7
_VECTORS = 7
"""q, v, tau, q_d, v_d, a_d, tau_command."""
_GUARD = 64
"""Oldest samples that are not read because the writer may be about to overwrite them."""


@dataclass(frozen=True)
class LoopTiming:
    """Time between the starts of the latest cycles, and their computing time: median, 99th percentile, maximum [s].

    Where the arm paces the loop, the computing time includes waiting for it.
    """

    period_p50: float
    period_p99: float
    period_max: float
    compute_p50: float
    compute_p99: float
    compute_max: float
    cycles: int


class SampleRing:
    """Ring of ``capacity`` samples of n joints in the memory of :meth:`allocate`; one writer, one reader."""

    def __init__(self, descriptor: int, n: int, capacity: int):
        self.n, self.capacity = n, capacity
        self._memory = mmap.mmap(descriptor, self.size(n, capacity))
        words = np.frombuffer(self._memory, dtype=np.int64)
        rows = _HEADER + capacity * _INTEGERS
        self._header = words[:_HEADER]  # [0]: samples written so far
        self._integers = words[_HEADER:rows].reshape(capacity, _INTEGERS)
        self._floats = words[rows:].view(np.float64).reshape(capacity, _VECTORS, n)
        self._next = 0
        self.dropped = 0

    @staticmethod
    def size(n: int, capacity: int) -> int:
        """Size of the memory [bytes]."""
        return 8 * (_HEADER + capacity * (_INTEGERS + _VECTORS * n))

    @classmethod
    def allocate(cls, n: int, capacity: int) -> int:
        """Allocate nameless shared memory for a ring; return its file descriptor, which the caller closes.

        Raises:
            ParameterOutOfRange: The capacity is too small.
        """
        if capacity < 4 * _GUARD:
            raise ParameterOutOfRange("capacity [samples]", capacity, f"{4 * _GUARD} or more")
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("sysid_ros_samples")
        else:  # systems without it have unlinked temporary files
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, cls.size(n, capacity))
        return descriptor

    def write(self, sample: LoopSample, period_ns: int, compute_ns: int) -> None:
        """Add a sample, with the time since the start of the cycle before and its computing time [ns]."""
        index = self._next
        slot = index % self.capacity
        integers, floats = self._integers[slot], self._floats[slot]
        integers[_INDEX] = -1
        (floats[0], floats[1], floats[2], floats[3], floats[4], floats[5], floats[6]) = sample[3:10]
        integers[_SEQUENCE:] = (sample.sequence, sample.stamp_ns, sample.ok, sample.mode, period_ns, compute_ns)
        integers[_INDEX] = index
        self._header[0] = self._next = index + 1

    def read(self) -> LoopSamples:
        """Return the usable samples written since the last call."""
        integers, floats = self._take()
        usable = (integers[:, _OK] == 1) & np.isfinite(floats[:, :3]).all(axis=(1, 2))
        return _join(integers[usable][:, [_STAMP, _SEQUENCE, _MODE]].T, floats[usable], self.dropped)

    def latest_stamp_ns(self) -> int:
        """Return the stamp of the latest sample [ns]; 0 before the first."""
        head = int(self._header[0])
        return int(self._integers[(head - 1) % self.capacity, _STAMP]) if head else 0

    def cycle_times(self, cycles: int) -> Array:
        """Period and computing time of the latest cycles, oldest first, (at most ``cycles``, 2) [s]."""
        head = int(self._header[0])
        count = min(cycles, head, self.capacity - _GUARD)
        rows = self._integers[np.arange(head - count, head) % self.capacity]
        return 1e-9 * rows[:, [_PERIOD, _COMPUTE]].astype(float)

    def timing(self, cycles: int = 1000) -> LoopTiming:
        """Return the timing of the latest cycles; zeros before the first."""
        times = self.cycle_times(cycles)
        quantiles = np.quantile(times, (0.5, 0.99, 1.0), axis=0) if len(times) else np.zeros((3, 2))
        (p50, c50), (p99, c99), (p_max, c_max) = quantiles.tolist()
        return LoopTiming(p50, p99, p_max, c50, c99, c_max, len(times))

    def _take(self) -> tuple[NDArray[np.int64], Array]:
        head = int(self._header[0])
        first = max(self._next, head - self.capacity + _GUARD)
        wanted = np.arange(first, head)
        slots = wanted % self.capacity
        integers, floats = self._integers[slots], self._floats[slots]
        # The writer may have overtaken the copy: possibly overwritten samples are dropped.
        oldest = int(self._header[0]) - self.capacity + 1
        intact = (integers[:, _INDEX] == wanted) & (wanted >= oldest)
        self.dropped += first - self._next + int(np.count_nonzero(~intact))
        self._next = head
        return integers[intact], floats[intact]
