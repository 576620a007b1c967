"""Node parameters, declared and checked in one place and derived from the settings they reach; ``--help`` of nodes.

The parameters of a node are a frozen dataclass that derives from :class:`NodeParameters`. Its fields are made with

- :func:`parameters_from`: all settings of a class become parameters and the field holds the settings themselves;
- :func:`parameter_like`: one parameter with the meaning of a setting;
- :func:`parameter`: one that only this node has.

:class:`ParameterServer` declares them on a node.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import partial
from types import ModuleType
from typing import Any, Generic, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter

from sysid_ros.core.common.command_line import ENDINGS, CommandParser
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.settings import Setting, describe_fields, per_class, settings_of

_TYPES: dict[Any, tuple[Parameter.Type, str]] = {
    bool: (Parameter.Type.BOOL, "true or false"),
    int: (Parameter.Type.INTEGER, "a whole number"),
    float: (Parameter.Type.DOUBLE, "a number with a decimal point, as in 2.0"),
    str: (Parameter.Type.STRING, "a text"),
    tuple[float, ...]: (Parameter.Type.DOUBLE_ARRAY, "a list of numbers with decimal points, as in [0.0, 2.5]"),
    tuple[str, ...]: (Parameter.Type.STRING_ARRAY, "a list of texts"),
}
_INT64 = 2**63 - 1
FOREIGN = ("use_sim_time", "start_type_description_service", "qos_overrides.")
"""Prefixes of the parameters that rclpy itself gives every node."""
_OWN, _GROUP = "parameter", "settings"


@dataclass(frozen=True)
class NodeParameter:
    """One parameter of a node, as ROS sees it.

    Attributes:
        name: Its name.
        value_type: Its Python type, one that ROS has.
        default: Its default.
        setting: Its unit, meaning and range.
        read_only: Whether it can only be given at the start of the node.
        group: Field of the node's parameters that holds the settings it belongs to, None for one of the node's own.
        target: Field of those settings.
        enumeration: Enumeration of that field, None for none.
    """

    name: str
    value_type: Any
    default: Any
    setting: Setting
    read_only: bool
    group: str | None = None
    target: str = ""
    enumeration: type[Enum] | None = None

    @property
    def allowed(self) -> str:
        """Its allowed values in words, as in 'a number from 0.1 to 10 s'."""
        if self.setting.choices:
            return "one of " + ", ".join(repr(choice) for choice in self.setting.choices)
        words = _TYPES[self.value_type][1]
        if self.setting.allowed:
            words += f", {self.setting.allowed}"
        return words + (f" [{self.setting.unit}]" if self.setting.unit not in ("", "-") else "")

    @property
    def descriptor(self) -> ParameterDescriptor:
        """Its ROS descriptor: type, description with unit, range."""
        info = self.setting
        result = ParameterDescriptor(
            name=self.name,
            type=_TYPES[self.value_type][0].value,
            description=info.description + (f" [{info.unit}]" if info.unit else ""),
            additional_constraints=f"allowed: {self.allowed}",
            read_only=self.read_only,
        )
        # Ranges of ROS include their ends; excluded ones are refused by the check of values.
        lower = info.lower if info.above is None else info.above
        upper = info.upper if info.below is None else info.below
        if lower is None and upper is None:
            return result
        if self.value_type is float:
            largest = sys.float_info.max
            least, most = -largest if lower is None else float(lower), largest if upper is None else float(upper)
            result.floating_point_range = [FloatingPointRange(from_value=least, to_value=most)]
        elif self.value_type is int:
            first, last = -_INT64 if lower is None else int(lower), _INT64 if upper is None else int(upper)
            result.integer_range = [IntegerRange(from_value=first, to_value=last)]
        return result

    @property
    def declared_default(self) -> Any:
        """Its default for rclpy, which cannot infer the type of an empty list."""
        if not isinstance(self.default, tuple):
            return self.default
        if not self.default and self.value_type != tuple[str, ...]:
            raise TypeError(f"parameter '{self.name}': ROS has no empty list of numbers; give a default with an entry")
        return list(self.default) or [""]

    def checked(self, value: Any) -> Any:
        """Return a value that was given as a plain Python one.

        Raises:
            ParameterOutOfRange: It has the wrong type or is not allowed.
        """
        value = _plain(value)
        inner = typing.get_args(self.value_type)
        if inner:
            fits = isinstance(value, tuple) and all(type(entry) is inner[0] for entry in value)
        else:
            fits = type(value) is self.value_type
        if not fits or not self.setting.admits(value):
            raise ParameterOutOfRange(self.setting.label(f"parameter {self.name}"), value, self.allowed)
        return value


def parameter(
    default: Any,
    unit: str = "",
    *,
    lower: float | None = None,
    upper: float | None = None,
    choices: Sequence[str] = (),
    read_only: bool = False,
) -> Any:
    """Make a field for a parameter that only this node has; the docstring below the field describes it.

    Args:
        default: Default value; tuples for lists, empty ones only for texts (ROS has no empty list of numbers).
        unit: Its unit, ``-`` for a pure number, empty for texts and switches.
        lower: Least allowed value (of every entry of a list) [unit].
        upper: Largest allowed value (of every entry of a list) [unit].
        choices: Allowed texts.
        read_only: Whether it can only be given at the start of the node.
    """
    info = Setting(unit, lower, upper, choices=tuple(choices))
    return field(default=default, metadata={_OWN: (info, read_only)})


def parameter_like(kind: type[Any], name: str, *, read_only: bool = False) -> Any:
    """Make a field for a parameter with the meaning of a setting, but for another process.

    A docstring below the field describes it; without one, the docstring of the setting does.

    Args:
        kind: Class of the settings.
        name: The setting.
        read_only: Whether it can only be given at the start of the node.
    """
    default = next(one.default for one in fields(kind) if one.name == name)
    plain = default.value if isinstance(default, Enum) else default
    return field(default=plain, metadata={_OWN: (settings_of(kind)[name], read_only)})


def parameters_from(
    kind: type[Any],
    *,
    rename: Mapping[str, str] | None = None,
    prefix: str = "",
    note: str = "",
    defaults: Mapping[str, Any] | None = None,
    computed: Sequence[str] = (),
    read_only: bool = False,
) -> Any:
    """Make a field that holds settings and has a parameter for each of them except library-only ones.

    Args:
        kind: Class of the settings.
        rename: Names of parameters that differ from their settings, by setting.
        prefix: Prefix of all other names.
        note: Prefix of the descriptions, as in ``LBR: ``.
        defaults: Defaults that differ from the settings.
        computed: Settings the node computes from other parameters; they have none of their own.
        read_only: Whether they can only be given at the start of the node.
    """
    declare = partial(
        _declared_from, kind=kind, rename=rename or {}, prefix=prefix, note=note, computed=computed, read_only=read_only
    )
    return field(default=kind(**(defaults or {})), metadata={_GROUP: declare})


@dataclass(frozen=True)
class NodeParameters:
    """Base of the parameters of a node. Building one checks types, ranges and the rules between fields.

    Raises:
        ParameterOutOfRange: A value has the wrong type, is outside its range or breaks a rule.
    """

    def __post_init__(self) -> None:
        for one in declared(type(self)).values():
            if one.group is None:
                object.__setattr__(self, one.name, one.checked(getattr(self, one.name)))
        self.check()

    def check(self) -> None:
        """Check rules between fields; raise :class:`ParameterOutOfRange` where one is broken."""

    def with_values(self: P, **values: Any) -> P:
        """Return these parameters with some changed.

        Args:
            values: New values by name of the parameter, as ROS has them.

        Raises:
            SysidError: There is no parameter of that name.
            ParameterOutOfRange: A value has the wrong type, is outside its range or breaks a rule.
        """
        known = declared(type(self))
        groups: dict[str, dict[str, Any]] = {}
        changed: dict[str, Any] = {}
        require_known(values, known, type(self).__name__)
        for name, value in values.items():
            one = known[name]
            plain = one.checked(value)
            if one.group is None:
                changed[name] = plain
            else:
                target = plain if one.enumeration is None else one.enumeration(plain)
                groups.setdefault(one.group, {})[one.target] = target
        try:
            changed |= {group: replace(getattr(self, group), **given) for group, given in groups.items()}
        except ParameterOutOfRange as error:
            raise ParameterOutOfRange(f"parameter {error.name}", error.value, error.allowed) from error
        return replace(self, **changed)


P = TypeVar("P", bound=NodeParameters)


def require_known(names: Iterable[str], known: Iterable[str], node: str) -> None:
    """Raise ``SysidError`` where a node does not have one of these parameters; it lists those it has."""
    valid = tuple(known)
    for name in names:
        if name not in valid:
            raise SysidError(f"node '{node}' has no parameter '{name}'; it has {', '.join(valid)}")


@per_class
def declared(kind: type[NodeParameters]) -> dict[str, NodeParameter]:
    """Return the parameters of a node by name, in the order of the fields."""
    hints, described = typing.get_type_hints(kind), describe_fields(kind)
    found: list[NodeParameter] = []
    for one in fields(kind):
        if _OWN in one.metadata:
            info, read_only = one.metadata[_OWN]
            info = replace(info, description=described.get(one.name, info.description))
            found.append(NodeParameter(one.name, hints[one.name], one.default, info, read_only))
        else:
            found += one.metadata[_GROUP](one.name, one.default)
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TypeError(
            f"{kind.__name__} declares {', '.join(twice)} twice; give one a `rename`, or list it as `computed`"
        )
    return dict(zip(names, found, strict=True))


def _declared_from(
    field_name: str,
    defaults: Any,
    kind: type[Any],
    rename: Mapping[str, str],
    prefix: str,
    note: str,
    computed: Sequence[str],
    read_only: bool,
) -> list[NodeParameter]:
    hints, known = typing.get_type_hints(kind), settings_of(kind)
    misspelt = sorted({*rename, *computed} - set(known))
    if misspelt:
        raise TypeError(f"{kind.__name__} has no settings {', '.join(misspelt)}")
    found = []
    for name, info in known.items():
        if info.library_only or name in computed:
            continue
        default, value_type = getattr(defaults, name), hints[name]
        enumeration = type(default) if isinstance(default, Enum) else None
        if note:
            text = info.description
            text = text[0].lower() + text[1:] if text[1:2].islower() else text
            info = replace(info, description=note + text)
        found.append(
            NodeParameter(
                name=rename.get(name, prefix + name),
                value_type=value_type if enumeration is None else str,
                default=default if enumeration is None else default.value,
                setting=info,
                read_only=read_only,
                group=field_name,
                target=name,
                enumeration=enumeration,
            )
        )
    return found


class ParameterServer(Generic[P]):
    """Declare a node's parameters and keep their current values.

    Attributes:
        values: The current values, always checked as a whole.

    Raises:
        SysidError: A parameter was given that the node does not have.
        ParameterOutOfRange: A given value has the wrong type, is outside its range or breaks a rule.
    """

    def __init__(self, node: Node, kind: type[P]):
        self._declared = declared(kind)
        # rclpy keeps what launch files, parameter files and the command line gave here and ignores unknown names.
        given = {name: value.value for name, value in node._parameter_overrides.items()}
        require_known((name for name in given if not name.startswith(FOREIGN)), self._declared, node.get_name())
        self.values: P = kind().with_values(**{name: given[name] for name in self._declared if name in given})
        self._callbacks: list[Callable[[P], None]] = []
        for name, one in self._declared.items():
            node.declare_parameter(name, one.declared_default, one.descriptor)
        node.add_on_set_parameters_callback(self._check)
        node.add_post_set_parameters_callback(self._apply)

    def on_change(self, callback: Callable[[P], None]) -> None:
        """Call ``callback(values)`` after every accepted change."""
        self._callbacks.append(callback)

    def _changed(self, parameters: Sequence[Parameter]) -> P:
        return self.values.with_values(**{item.name: item.value for item in parameters if item.name in self._declared})

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


def _plain(value: Any) -> Any:
    """Return lists and arrays of ROS as tuples; a list of one empty text is how ROS writes a list of no texts."""
    if isinstance(value, (bool, int, float, str)):
        return value
    return () if list(value) == [""] else tuple(value)


def parameters_of(module: ModuleType) -> type[NodeParameters]:
    """Return the class of parameters of a node module, defined there or in its part of ``sysid_ros.adapters``.

    Raises:
        LookupError: There is none, or more than one.
    """
    homes = (module.__name__, f"{module.__package__}.".replace(".nodes.", ".adapters."))
    kinds = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, NodeParameters) and value.__module__.startswith(homes)
    ]
    if len(kinds) != 1:
        raise LookupError(f"{module.__name__} defines {len(kinds)} classes of parameters; needed: 1")
    return kinds[0]


def node_parser(node_class: Callable[[], Node], program: str) -> CommandParser:
    """Return the parser of a node's command line without the arguments of ROS: it accepts only ``--help``."""
    about = (inspect.getdoc(node_class) or "A node.").split("\n\n")[0]
    try:
        known = list(declared(parameters_of(sys.modules[node_class.__module__])).values())
    except LookupError:
        known = []
    lines = [_describe(one) for one in known]
    parts = [about, "It runs until Ctrl-C. Parameters are given after --ros-args:"]
    parts += ["\n".join(["parameters:", *lines])] if lines else []
    first = next((f"{one.name}:={one.default}" for one in known if one.default not in ("", ())), "use_sim_time:=true")
    return CommandParser(
        prog=program,
        usage=f"{program} [-h] [--ros-args -p NAME:=VALUE --params-file FILE ...]",
        description="\n\n".join(parts),
        examples=(f"ros2 run sysid_ros {program} --ros-args -p {first}",),
        endings=ENDINGS,
        allow_abbrev=False,
    )


def _describe(one: NodeParameter) -> str:
    unit = one.setting.unit
    default = ",".join(map(str, one.default)) if isinstance(one.default, tuple) else one.default
    shown = f"{str(default).lower() if isinstance(default, bool) else default}{f' {unit}' if unit.strip('-') else ''}"
    return f"  {one.name} ({shown}): {one.setting.description}" if shown else f"  {one.name}: {one.setting.description}"
