"""Nested settings (a robot's YAML), with errors for everything unknown, missing or out of range, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange

_REQUIRED = object()


class Section:
    """A mapping of settings that remembers what has been read from it.

    Args:
        values: The settings.
        path: Their place, for messages ("kinova_gen3.yaml: sensors").

    Raises:
        ParameterOutOfRange: ``values`` is no mapping. Every reading method raises it too, with name, value and allowed
            range, where a value is missing, of the wrong kind or out of range.
    """

    def __init__(self, values: Any, path: str):
        if not isinstance(values, Mapping):
            raise ParameterOutOfRange(path, values, "a mapping of names to values")
        self._values = values
        self._read: set[str] = set()
        self.path = path

    @property
    def keys(self) -> list[str]:
        """Names of the settings."""
        return [str(key) for key in self._values]

    def __contains__(self, key: str) -> bool:
        """Test whether the setting is given."""
        return key in self._values

    def get(self, key: str, default: Any = _REQUIRED, allowed: str = "a value") -> Any:
        """Return the raw value; without a default it is required."""
        self._read.add(key)
        if key in self._values:
            return self._values[key]
        if default is _REQUIRED:
            raise ParameterOutOfRange(self._name(key), None, f"{allowed} (it is missing)")
        return default

    def section(self, key: str, default: Any = _REQUIRED) -> Section:
        """Return the settings below ``key``."""
        return Section(self.get(key, default, "a mapping"), self._name(key))

    def text(self, key: str, default: Any = _REQUIRED, choices: Sequence[str] = ()) -> str:
        """Read a text, one of ``choices`` where there are any."""
        allowed = f"one of {', '.join(choices)}" if choices else "a text"
        value = self.get(key, default, allowed)
        if not isinstance(value, str) or (choices and value not in choices):
            raise ParameterOutOfRange(self._name(key), value, allowed)
        return value

    def flag(self, key: str, default: Any = _REQUIRED) -> bool:
        """Read a truth value."""
        value = self.get(key, default, "true or false")
        if not isinstance(value, bool):
            raise ParameterOutOfRange(self._name(key), value, "true or false")
        return value

    def number(self, key: str, unit: str, lower: float, upper: float = math.inf, default: Any = _REQUIRED) -> float:
        """Read a number with lower <= number <= upper."""
        within = _Range(unit, lower, upper)
        return within.number(self.get(key, default, within.text), self._name(key))

    def vector(
        self,
        key: str,
        size: int,
        unit: str,
        lower: float = -math.inf,
        upper: float = math.inf,
        default: Any = _REQUIRED,
    ) -> NDArray[np.float64]:
        """Read a list of ``size`` numbers, each with lower <= number <= upper, as (size,)."""
        within = _Range(unit, lower, upper)
        allowed = f"a list of {size} numbers, each {within.text}"
        return within.vector(self.get(key, default, allowed), size, self._name(key), allowed)

    def per_joint(
        self, key: str, n: int, unit: str, lower: float, upper: float = math.inf, default: Any = _REQUIRED
    ) -> NDArray[np.float64]:
        """Read one number for all joints or a list of n numbers in the order of the joints, as (n,)."""
        value = self.get(key, default, f"a number or a list of {n} numbers")
        if isinstance(value, (list, tuple)):
            return self.vector(key, n, unit, lower, upper)
        return np.full(n, self.number(key, unit, lower, upper, default))

    def rows(
        self, key: str, width: int, unit: str, lower: float, upper: float, default: Any = _REQUIRED
    ) -> list[NDArray[np.float64]]:
        """Read a list of lists of ``width`` numbers each, as arrays (width,)."""
        value = self.get(key, default, f"a list of rows of {width} numbers")
        if not isinstance(value, (list, tuple)):
            raise ParameterOutOfRange(self._name(key), value, f"a list of rows of {width} numbers")
        within = _Range(unit, lower, upper)
        allowed = f"{width} numbers, each {within.text}"
        return [within.vector(row, width, f"{self._name(key)}[{i}]", allowed) for i, row in enumerate(value)]

    def sections_by_joint(self, joint_names: Sequence[str]) -> list[Section]:
        """Return one section for each joint, in their order.

        Raises:
            ParameterOutOfRange: A key is not one of the joints.
        """
        for key in self.keys:
            if key not in joint_names:
                raise ParameterOutOfRange("joint", key, f"one of {', '.join(joint_names)}")
        return [self.section(name) for name in joint_names]

    def finish(self) -> None:
        """Raise an error for settings that were never read: a misspelt name must not be ignored."""
        for key in self.keys:
            if key not in self._read:
                known = ", ".join(sorted(self._read))
                raise ParameterOutOfRange(
                    self._name(key), self._values[key], f"no setting of that name; known: {known}"
                )

    def _name(self, key: str) -> str:
        return f"{self.path}.{key}"


@dataclass(frozen=True)
class _Range:
    """Allowed values of a number, in its unit."""

    unit: str
    lower: float
    upper: float

    @property
    def text(self) -> str:
        if math.isinf(self.lower) and math.isinf(self.upper):
            return f"any finite number [{self.unit}]"
        if math.isinf(self.upper):
            return f"at least {self.lower:g} [{self.unit}]"
        return f"{self.lower:g} to {self.upper:g} [{self.unit}]"

    def number(self, value: Any, name: str) -> float:
        if isinstance(value, str):
            # YAML 1.1 reads 1e-3 (without a point) as a text.
            try:
                value = float(value)
            except ValueError:
                raise ParameterOutOfRange(name, value, self.text) from None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not self.lower <= value <= self.upper:
            raise ParameterOutOfRange(name, value, self.text)
        return float(value)

    def vector(self, value: Any, size: int, name: str, allowed: str) -> NDArray[np.float64]:
        """Check a list of ``size`` numbers, which ``allowed`` describes."""
        if not isinstance(value, (list, tuple, np.ndarray)) or len(value) != size:
            raise ParameterOutOfRange(name, value, allowed)
        return np.array([self.number(x, f"{name}[{i}]") for i, x in enumerate(value)])
