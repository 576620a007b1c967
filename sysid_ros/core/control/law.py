"""Which control law moves an arm: what a tracking bound is proven for, and what a driver says it runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class ControlLaw:
    """A control law with its settings.

    Attributes:
        name: Name of the law.
        settings: Its settings by name in alphabetical order, SI units.
    """

    name: str
    settings: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", tuple(sorted(self.settings)))

    @classmethod
    def of(cls, name: str, settings: Any) -> ControlLaw:
        """Describe a law by a dataclass of numbers."""
        return cls(name, tuple((entry.name, float(getattr(settings, entry.name))) for entry in fields(settings)))

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value!r}" for name, value in self.settings)])
