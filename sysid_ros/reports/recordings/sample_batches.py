"""Decodes recorded batches of samples array by array; the general decoder of MCAP unpacks number by number."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Decoder = Callable[[bytes], Any]

_FIELDS = {
    "header": "std_msgs/Header",
    "joint_names": "string[]",
    "first_sequence": "uint64",
    "payload_epoch": "uint32",
    "stamps": "int64[]",
    "positions": "float64[]",
    "velocities": "float64[]",
    "efforts": "float64[]",
    "reference_positions": "float64[]",
    "reference_velocities": "float64[]",
    "reference_accelerations": "float64[]",
    "commanded_efforts": "float64[]",
    "valid": "bool[]",
    "modes": "uint8[]",
    "dropped": "uint64",
    "session": "string",
    "authentication": "uint8[]",
}
_ADDED = 2
"""So many of the last fields are not in recordings of older versions."""
_KINDS = {"int64": "i8", "uint64": "u8", "float64": "f8", "uint32": "u4", "uint8": "u1", "bool": "u1"}
_ORDERS = {b"\x00\x00": ">", b"\x00\x01": "<"}
"""Byte orders of plain CDR by the first bytes of a message."""


def batch_decoder(definition: str, general: Decoder) -> Decoder:
    """Return a fast decoder of batches of samples, or the general one where they are defined differently.

    Args:
        definition: Definition of the message as it was recorded.
        general: Decodes any message.
    """
    own = definition.partition("\n===")[0]
    lines = (line.partition("#")[0].split() for line in own.splitlines())
    defined, known = [tuple(line[::-1]) for line in lines if line], list(_FIELDS.items())
    if defined not in (known, known[:-_ADDED]):
        return general

    def decode(data: bytes) -> Any:
        order = _ORDERS.get(data[:2])
        return general(data) if order is None else _decode(_Reader(data, order), defined)

    return decode


class _Reader:
    """Reads values of a message in plain CDR one after the other."""

    def __init__(self, data: bytes, order: str):
        self._data, self._order, self._at = data, order, 4

    def array(self, kind: str, count: int) -> NDArray[Any]:
        """Read some numbers, aligned to their size."""
        dtype = np.dtype(self._order + kind)
        if not count:
            return np.zeros(0, dtype)
        start = self._at + (4 - self._at) % dtype.itemsize
        values = np.frombuffer(self._data, dtype, count, start)
        self._at = start + values.nbytes
        return values

    def number(self, kind: str) -> int:
        """Read a whole number."""
        return int(self.array(kind, 1)[0])

    def text(self) -> str:
        """Read a string."""
        return self.array("u1", self.number("u4")).tobytes().rstrip(b"\x00").decode()


def _decode(reader: _Reader, defined: list[tuple[str, ...]]) -> SimpleNamespace:
    stamp = SimpleNamespace(sec=reader.number("i4"), nanosec=reader.number("u4"))
    values: dict[str, Any] = {"header": SimpleNamespace(stamp=stamp, frame_id=reader.text())}
    for name, kind in defined[1:]:
        if kind == "string[]":
            values[name] = [reader.text() for _ in range(reader.number("u4"))]
        elif kind == "string":
            values[name] = reader.text()
        elif kind.endswith("[]"):
            values[name] = reader.array(_KINDS[kind[:-2]], reader.number("u4"))
        else:
            values[name] = reader.number(_KINDS[kind])
    return SimpleNamespace(**values)
