"""Shared by all conversions: errors, stamps, names of joints and parameters, arrays."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.regressors.rest_torque import RestTorque

Array = NDArray[np.float64]

M = TypeVar("M")

_NANOSECONDS = 1_000_000_000
_SCALARS: dict[str, Any] = {"boolean": bool, "string": str, "double": float}
"""Python types of fields that are no whole numbers."""


class InvalidMessage(SysidError):
    """A message whose content does not fit.

    Args:
        kind: Type of the message.
        field: Field at fault.
        reason: The value found and the value needed.
    """

    def __init__(self, kind: str, field: str, reason: str):
        self.kind = kind
        self.field = field
        self.reason = reason
        super().__init__(f"{kind}: {field} {reason}")


def stamp_to_message(stamp_ns: int) -> Time:
    """Nanoseconds since the epoch as a ROS time."""
    seconds, nanoseconds = divmod(int(stamp_ns), _NANOSECONDS)
    return Time(sec=seconds, nanosec=nanoseconds)


def stamp_from_message(stamp: Time) -> int:
    """Return a ROS time in nanoseconds since the epoch."""
    return stamp.sec * _NANOSECONDS + stamp.nanosec


def joint_order(kind: str, given: Sequence[str], wanted: Sequence[str]) -> NDArray[np.intp]:
    """Where each wanted joint is among the given ones.

    Args:
        kind: Type of the message the names come from, for the error.
        given: Names in the message.
        wanted: Names of the robot.

    Returns:
        Indices, (n,): ``values[..., order]`` has the robot's order.

    Raises:
        InvalidMessage: A name is missing, unknown or given twice.
    """
    given = list(given)
    expected = ", ".join(wanted)
    for name in given:
        if name not in wanted:
            raise InvalidMessage(kind, "joint_names", f"has the unknown joint '{name}'; the robot has {expected}")
        if given.count(name) > 1:
            raise InvalidMessage(kind, "joint_names", f"has '{name}' more than once")
    for name in wanted:
        if name not in given:
            raise InvalidMessage(kind, "joint_names", f"lacks '{name}'; the robot has {expected}")
    return np.array([given.index(name) for name in wanted], dtype=np.intp)


def joint_vector_from_message(
    kind: str, field: str, names: Sequence[str], values: ArrayLike, wanted: Sequence[str]
) -> Array:
    """Numbers by joint in the robot's order, (n,).

    Raises:
        InvalidMessage: The names or the number of values do not fit, or a value is not finite.
    """
    order = joint_order(kind, names, wanted)
    numbers = np.asarray(values, dtype=float)
    if numbers.shape != (len(wanted),):
        raise InvalidMessage(kind, field, f"has {numbers.size} entries for {len(wanted)} joints")
    if not np.all(np.isfinite(numbers)):
        bad = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise InvalidMessage(kind, field, f"is {numbers[bad]} for {list(names)[bad]}; it must be finite")
    return numbers[order]


def parameter_order(kind: str, names: Sequence[str]) -> NDArray[np.intp]:
    """Return where each of our ten parameters is among the names in a message of a kind, (10,).

    Raises:
        InvalidMessage: The names are not exactly our ten.
    """
    given = list(names)
    if sorted(given) != sorted(PARAMETER_NAMES):
        raise InvalidMessage(kind, "names", f"is {', '.join(given)}; needed: {', '.join(PARAMETER_NAMES)}")
    return np.array([given.index(name) for name in PARAMETER_NAMES], dtype=np.intp)


def to_array(code: str, values: ArrayLike, kind: Any) -> array:
    """Numbers as the array type that rclpy accepts without checking each of them."""
    return array(code, np.ascontiguousarray(values, dtype=kind).tobytes())


def message_of(kind: type[M], *sources: object, **fields: Any) -> M:
    """Make a message from given fields and from the attributes of objects that have the names of others.

    Attributes that are None leave the default of their field.

    Args:
        kind: Type of the message.
        *sources: The objects.
        **fields: Fields that are not an attribute of the same name.
    """
    for name, text in kind.get_fields_and_field_types().items():  # type: ignore[attr-defined]
        found = next((getattr(source, name) for source in sources if hasattr(source, name)), None)
        if name not in fields and found is not None:
            fields[name] = _as_field(text, found)
    return kind(**fields)


def _as_field(text: str, value: Any) -> Any:
    base, is_list, _ = text.removeprefix("sequence<").replace(">", "[").partition("[")
    kind = _SCALARS.get(base, int)
    if not is_list:
        return kind(value)
    return to_array("d", np.ravel(value), np.float64) if kind is float else list(map(kind, value))


def fields_of(message: Any, kind: type[Any]) -> dict[str, Any]:
    """Return the fields of a message that a dataclass has under the same name; numbers in a list as an array."""
    types, names = message.get_fields_and_field_types(), {one.name for one in dataclasses.fields(kind)}
    return {
        name: np.array(getattr(message, name), dtype=float)
        if text.startswith(("double[", "sequence<double"))
        else getattr(message, name)
        for name, text in types.items()
        if name in names
    }


def rest_fields(rest: RestTorque | None, prefix: str = "rest") -> dict[str, Any]:
    """Return the fields of a message that hold a torque at rest, empty where there is none."""
    if rest is None:
        return {}
    numbers = {"posture": rest.posture, "torque_lower": rest.torque.lower, "torque_upper": rest.torque.upper}
    fields = {f"{prefix}_{name}": to_array("d", values, np.float64) for name, values in numbers.items()}
    return {f"{prefix}_joint_names": list(rest.joint_names), **fields}


def rest_from_message(message: Any, prefix: str = "rest") -> RestTorque | None:
    """Return the torque at rest in a message; None where there is none.

    Raises:
        SysidError: A lower bound is above its upper bound.
        ParameterOutOfRange: Lengths do not fit, or a number is not finite.
    """
    names = tuple(getattr(message, f"{prefix}_joint_names"))
    posture, lower, upper = (
        np.array(getattr(message, f"{prefix}_{name}"), dtype=float)
        for name in ("posture", "torque_lower", "torque_upper")
    )
    if not names and not posture.size and not lower.size and not upper.size:
        return None
    if lower.size != upper.size:
        kind = type(message).__name__
        raise InvalidMessage(kind, f"{prefix}_torque_lower", f"has {lower.size} entries, the upper bounds {upper.size}")
    return RestTorque(names, posture, Box(lower, upper))
