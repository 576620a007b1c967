"""Settings with unit, range and description in one place: their own fields.

A class of settings is a frozen dataclass that derives from :class:`Settings`. Every field a user can choose is made
with :func:`setting` and has a docstring below it. Building one checks it; node parameters and their documentation
derive from it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast

from sysid_ros.core.common.errors import ParameterOutOfRange

F = TypeVar("F", bound=Callable[..., Any])

_KEY = "setting"


def per_class(function: F) -> F:
    """Cache the result of a function of a class; like ``cache``, with a type that accepts classes as arguments."""
    return cast(F, cache(function))


@dataclass(frozen=True)
class Setting:
    """Meaning and allowed values of a setting.

    Attributes:
        unit: Its unit, ``-`` for a pure number, empty for texts, switches and choices.
        lower: Least allowed value (of every entry of a tuple) [unit].
        upper: Largest allowed value (of every entry of a tuple) [unit].
        above: Excluded lower end [unit].
        below: Excluded upper end [unit].
        choices: Allowed values where they can be listed.
        library_only: Whether no node has a parameter for it.
        description: Its effect: the docstring of the field.
    """

    unit: str
    lower: float | None = None
    upper: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[Any, ...] = ()
    library_only: bool = False
    description: str = ""

    def admits(self, value: object) -> bool:
        """Return whether a value, or every entry of a tuple or an array, is allowed."""
        if value is None:
            return True
        if getattr(value, "ndim", 0):  # an array; numpy itself takes longer to load than all settings
            return all(self.admits(entry) for entry in value.ravel())  # type: ignore[attr-defined]
        if isinstance(value, tuple):
            return all(self.admits(entry) for entry in value)
        if self.choices:
            return (value.value if isinstance(value, Enum) else value) in self.choices
        # Written so that NaN is refused too.
        number: Any = value
        return (
            (self.lower is None or number >= self.lower)
            and (self.upper is None or number <= self.upper)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    @property
    def allowed(self) -> str:
        """Allowed values, as in 'from 0.1 to 10'; empty where all are."""
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        if self.lower is not None and self.upper is not None:
            return f"from {_number(self.lower)} to {_number(self.upper)}"
        ends = (("above", self.above), ("at least", self.lower), ("below", self.below), ("at most", self.upper))
        return ", ".join(f"{word} {_number(end)}" for word, end in ends if end is not None)

    def label(self, name: str) -> str:
        """Return a name with the unit, as in 'duration [s]'."""
        return f"{name} [{self.unit}]" if self.unit else name


def setting(
    default: Any,
    unit: str = "",
    *,
    lower: float | None = None,
    upper: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Sequence[Any] = (),
    library_only: bool = False,
) -> Any:
    """Make a field of a class of settings; the arguments are those of :class:`Setting`.

    Args:
        default: Default value; its enumeration, if it is of one, gives the choices.
        unit: Its unit, ``-`` for a pure number, empty for texts, switches and choices.
        lower: Least allowed value [unit].
        upper: Largest allowed value [unit].
        above: Excluded lower end [unit].
        below: Excluded upper end [unit].
        choices: Allowed values where they can be listed.
        library_only: Whether no node has a parameter for it.
    """
    allowed = tuple(one.value for one in type(default)) if isinstance(default, Enum) else tuple(choices)
    return field(default=default, metadata={_KEY: Setting(unit, lower, upper, above, below, allowed, library_only)})


@per_class
def describe_fields(kind: type[Any]) -> dict[str, str]:
    """Return the docstrings below the fields of a dataclass, in a line each, by name; none without source."""
    found = {}
    for base in reversed(kind.__mro__):
        if "__dataclass_fields__" not in vars(base):
            continue
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except OSError:  # compiled files alone are installed: nodes run without descriptions
            continue
        body = ast.parse(source).body[0].body  # type: ignore[attr-defined]  # a class
        for one, below in zip(body, body[1:], strict=False):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(below, ast.Expr):
                found[one.target.id] = " ".join(str(ast.literal_eval(below.value)).split()).rstrip(".")
    return found


@per_class
def settings_of(kind: type[Any]) -> dict[str, Setting]:
    """Return the settings made with :func:`setting` of a class, by name, descriptions included."""
    described = describe_fields(kind)
    return {
        name: replace(info, description=described.get(name, ""), library_only=info.library_only or kind.library_only)
        for name, info in _bare(kind).items()
    }


@per_class
def _bare(kind: type[Any]) -> dict[str, Setting]:
    """Return the same without descriptions, which takes no source code."""
    return {one.name: one.metadata[_KEY] for one in fields(kind) if _KEY in one.metadata}


def validate(settings: Any) -> None:
    """Check every field of a dataclass against its :func:`setting`.

    Raises:
        ParameterOutOfRange: The first that is not allowed.
    """
    for name, info in _bare(type(settings)).items():
        value = getattr(settings, name)
        if not info.admits(value):
            raise ParameterOutOfRange(info.label(name), value, info.allowed)


class Settings:
    """Base of all settings: building one checks it.

    A class with rules between fields checks them in its own ``__post_init__`` after calling this one.
    With ``class Gains(Settings, library_only=True)`` no node has parameters for any of the fields.

    Raises:
        ParameterOutOfRange: A value is not allowed.
    """

    library_only = False

    def __init_subclass__(cls, library_only: bool = False) -> None:
        super().__init_subclass__()
        cls.library_only = library_only

    def __post_init__(self) -> None:
        validate(self)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
