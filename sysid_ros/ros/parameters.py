"""Node parameters as dataclasses: one field each, with unit, range and description, declared and checked in one place.

A node's parameters are a frozen dataclass that derives from :class:`NodeParameters`; every field is made with
:func:`parameter`. Building one checks it, with or without ROS; :class:`ParameterServer` declares the fields on a node.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError

_TYPES = {
    bool: (Parameter.Type.BOOL, "true or false"),
    int: (Parameter.Type.INTEGER, "a whole number"),
    float: (Parameter.Type.DOUBLE, "a number with a decimal point, as in 2.0"),
    str: (Parameter.Type.STRING, "a text"),
    tuple[float, ...]: (Parameter.Type.DOUBLE_ARRAY, "a list of numbers with decimal points, as in [0.0, 2.5]"),
    tuple[str, ...]: (Parameter.Type.STRING_ARRAY, "a list of texts"),
}
_INT64 = 2**63 - 1
_FOREIGN = ("use_sim_time", "start_type_description_service", "qos_overrides.")


class UnknownParameter(SysidError):
    """A parameter the node does not have.

    Args:
        node: Name of the node.
        name: The unknown name.
        valid_names: Names of the parameters it has.
    """

    def __init__(self, node: str, name: str, valid_names: Sequence[str]):
        self.node = node
        self.name = name
        self.valid_names = tuple(valid_names)
        super().__init__(f"node '{node}' has no parameter '{name}'; it has {', '.join(self.valid_names)}")


def parameter(
    default: Any,
    unit: str,
    description: str,
    *,
    lower: float | None = None,
    upper: float | None = None,
    choices: Sequence[str] = (),
    read_only: bool = False,
) -> Any:
    """A field of a :class:`NodeParameters`.

    Args:
        default: Default value; tuples for lists, empty ones only for texts (ROS has no empty list of numbers).
        unit: Its unit, ``-`` for a pure number, empty for texts and switches.
        description: What it does, in one sentence.
        lower: Least allowed value (of every entry of a list) [unit].
        upper: Largest allowed value (of every entry of a list) [unit].
        choices: Allowed texts.
        read_only: Whether it can only be given at the start of the node.
    """
    metadata = {
        "unit": unit,
        "description": description,
        "lower": lower,
        "upper": upper,
        "choices": tuple(choices),
        "read_only": read_only,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class NodeParameters:
    """Base of the parameters of a node. Building one checks types, ranges and the rules between fields.

    Raises:
        ParameterOutOfRange: A value has the wrong type, is outside its range or breaks a rule.
    """

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, _checked(type(self), one, getattr(self, one.name)))
        self.check()

    def check(self) -> None:
        """Rules between fields; raise :class:`ParameterOutOfRange` where one is broken."""


P = TypeVar("P", bound=NodeParameters)


class ParameterServer(Generic[P]):
    """Declares a node's parameters and keeps their current values.

    Args:
        node: The node.
        kind: Its dataclass of parameters.

    Attributes:
        values: The current values, always checked as a whole.

    Raises:
        UnknownParameter: A parameter was given that the node does not have.
        ParameterOutOfRange: A given value has the wrong type, is outside its range or breaks a rule.
    """

    def __init__(self, node: Node, kind: type[P]):
        names = [one.name for one in fields(kind)]
        # rclpy keeps what launch files, parameter files and the command line gave here and ignores unknown names.
        given = {name: value.value for name, value in node._parameter_overrides.items()}
        for name in given:
            if name not in names and not name.startswith(_FOREIGN):
                raise UnknownParameter(node.get_name(), name, names)
        self.values: P = kind(**{name: _plain(given[name]) for name in names if name in given})
        self._callbacks: list[Callable[[P], None]] = []
        for one in fields(kind):
            node.declare_parameter(one.name, _default(kind, one), descriptor(kind, one))
        node.add_on_set_parameters_callback(self._check)
        node.add_post_set_parameters_callback(self._apply)

    def on_change(self, callback: Callable[[P], None]) -> None:
        """Calls ``callback(values)`` after every accepted change."""
        self._callbacks.append(callback)

    def _changed(self, parameters: Sequence[Parameter]) -> P:
        names = {one.name for one in fields(self.values)}
        return replace(self.values, **{item.name: _plain(item.value) for item in parameters if item.name in names})

    def _check(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        try:
            self._changed(parameters)
        except ParameterOutOfRange as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _apply(self, parameters: Sequence[Parameter]) -> None:
        self.values = self._changed(parameters)
        for callback in self._callbacks:
            callback(self.values)


def descriptor(kind: type[NodeParameters], one: Field) -> ParameterDescriptor:
    """The ROS descriptor of a field: type, description with unit, range."""
    value_type = typing.get_type_hints(kind)[one.name]
    unit = one.metadata["unit"]
    lower, upper = one.metadata["lower"], one.metadata["upper"]
    result = ParameterDescriptor(
        name=one.name,
        type=_TYPES[value_type][0].value,
        description=one.metadata["description"] + (f" [{unit}]" if unit else ""),
        additional_constraints=f"allowed: {allowed_values(kind, one)}",
        read_only=one.metadata["read_only"],
    )
    if lower is None and upper is None:
        return result
    if value_type is float:
        largest = sys.float_info.max
        span = FloatingPointRange(
            from_value=-largest if lower is None else float(lower), to_value=largest if upper is None else float(upper)
        )
        result.floating_point_range = [span]
    elif value_type is int:
        span = IntegerRange(
            from_value=-_INT64 if lower is None else int(lower), to_value=_INT64 if upper is None else int(upper)
        )
        result.integer_range = [span]
    return result


def allowed_values(kind: type[NodeParameters], one: Field) -> str:
    """What a field may be, in words, as in 'a number from 0.1 to 10 s'."""
    metadata = one.metadata
    if metadata["choices"]:
        return "one of " + ", ".join(repr(choice) for choice in metadata["choices"])
    words = _TYPES[typing.get_type_hints(kind)[one.name]][1]
    lower, upper, unit = metadata["lower"], metadata["upper"], metadata["unit"]
    if lower is not None and upper is not None:
        words += f", from {_number(lower)} to {_number(upper)}"
    elif lower is not None:
        words += f", at least {_number(lower)}"
    elif upper is not None:
        words += f", at most {_number(upper)}"
    return words + (f" [{unit}]" if unit not in ("", "-") else "")


def _checked(kind: type[NodeParameters], one: Field, value: Any) -> Any:
    metadata = one.metadata
    value_type = typing.get_type_hints(kind)[one.name]
    value = _plain(value)
    refused = ParameterOutOfRange(_label(one), value, allowed_values(kind, one))
    if typing.get_origin(value_type) is tuple:
        inner = typing.get_args(value_type)[0]
        if not isinstance(value, tuple) or not all(type(entry) is inner for entry in value):
            raise refused
        entries = value
    else:
        if type(value) is not value_type:
            raise refused
        entries = (value,)
    lower, upper = metadata["lower"], metadata["upper"]
    for entry in entries:
        if metadata["choices"] and entry not in metadata["choices"]:
            raise refused
        # Written so that NaN is refused too.
        if (lower is not None and not entry >= lower) or (upper is not None and not entry <= upper):
            raise refused
    return value


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _label(one: Field) -> str:
    unit = one.metadata["unit"]
    return f"parameter '{one.name}'" + (f" [{unit}]" if unit else "")


def _plain(value: Any) -> Any:
    """Lists and arrays of ROS as tuples; a list of one empty text is how ROS writes a list of no texts."""
    if isinstance(value, (bool, int, float, str)):
        return value
    return () if list(value) == [""] else tuple(value)


def _default(kind: type[NodeParameters], one: Field) -> Any:
    """The default as rclpy takes it: it cannot tell the type of an empty list."""
    if not isinstance(one.default, tuple):
        return one.default
    if not one.default and typing.get_type_hints(kind)[one.name] != tuple[str, ...]:
        raise TypeError(f"parameter '{one.name}': ROS has no empty list of numbers; give a default with an entry")
    return list(one.default) or [""]
