"""Inputs and outputs of the emulated controller, which an application there shares with the client of FRI."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.drivers.kuka_fri.codec import MOST_IOS
from sysid_ros.drivers.kuka_fri.messages import IoDirection, IoType, IoValue

_LONGEST_NAME = 63
"""Of an input or output [bytes]; own rule, so that ten of them fit in a datagram."""
_LARGEST_DIGITAL = 2**64 - 1
_FORM = "NAME:boolean|digital|analog:input|output[=VALUE], such as gripper_closed:boolean:input=1"


def read_io(text: str) -> IoValue:
    """Read an input or output of a command line.

    Args:
        text: ``NAME:TYPE:DIRECTION`` or ``NAME:TYPE:DIRECTION=VALUE``; without a value it begins with 0.

    Raises:
        ParameterOutOfRange: It has another form, or the value does not fit the type.
    """
    head, _, value = text.partition("=")
    name, *words = head.split(":")
    if not name or len(name.encode()) > _LONGEST_NAME or len(words) != 2:
        raise ParameterOutOfRange("--io", text, _FORM)
    try:
        io = IoValue(name, IoType[words[0].upper()], IoDirection[words[1].upper()], 0.0)
        return io._replace(value=_checked(io, float(value or 0.0)))
    except (KeyError, ValueError):
        raise ParameterOutOfRange("--io", text, _FORM) from None
    except SysidError as error:
        raise ParameterOutOfRange("--io", text, f"{_FORM}; {error}") from None


class IoTable:
    """The inputs and outputs of an application with their present values.

    Raises:
        ParameterOutOfRange: There are too many, or two of one name.
    """

    def __init__(self, ios: Iterable[IoValue] = ()):
        listed = list(ios)
        self._ios = {io.name: io for io in listed}
        if len(self._ios) < len(listed):
            raise ParameterOutOfRange("inputs and outputs", [io.name for io in listed], "each name once")
        if len(listed) > MOST_IOS:
            raise ParameterOutOfRange("number of inputs and outputs", len(listed), f"at most {MOST_IOS}")

    @property
    def values(self) -> tuple[IoValue, ...]:
        """All of them, as a monitoring message carries them."""
        return tuple(self._ios.values())

    def set_input(self, name: str, value: float) -> None:
        """Set an input, as the cell around the robot does.

        Raises:
            SysidError: There is no such input, or the value does not fit its type.
        """
        self._ios[name] = self._changed(name, IoDirection.INPUT, value)

    def set_outputs(self, wanted: Iterable[IoValue]) -> list[str]:
        """Set the outputs a client asks for, all or none; return what changes, each as ``name = value``.

        Raises:
            SysidError: With the first that cannot be set.
        """
        changed = [self._changed(one.name, IoDirection.OUTPUT, one.value, one.kind) for one in wanted]
        news = [f"{io.name} = {io.value:g}" for io in changed if self._ios[io.name].value != io.value]
        self._ios.update({io.name: io for io in changed})
        return news

    def _changed(self, name: str, direction: IoDirection, value: float, kind: IoType | None = None) -> IoValue:
        known = self._ios.get(name)
        if known is None or known.direction is not direction:
            there = ", ".join(io.name for io in self._ios.values() if io.direction is direction) or "none"
            raise SysidError(
                f"'{name}' cannot be set", f"it is no {direction.name.lower()} of this application, which has {there}"
            )
        if kind not in (None, known.kind):
            raise SysidError(f"'{name}' cannot be set", f"it is {known.kind.name}, the request says {kind.name}")
        return known._replace(value=_checked(known, value))


def _checked(io: IoValue, value: float) -> float:
    if io.kind is IoType.BOOLEAN and value not in (0, 1):
        raise SysidError(f"'{io.name}' cannot be set", f"{value:g} is not 0 or 1")
    if io.kind is IoType.DIGITAL and not (0 <= value <= _LARGEST_DIGITAL and value == int(value)):
        raise SysidError(f"'{io.name}' cannot be set", f"{value:g} is not a whole number from 0")
    if not math.isfinite(value):
        raise SysidError(f"'{io.name}' cannot be set", f"{value} is not a number")
    return value
