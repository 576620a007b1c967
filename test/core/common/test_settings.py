"""Settings are checked against, and described by, what their fields say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting, settings_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Example(Settings):
    """Settings that exist only here."""

    duration: float = setting(2.0, "s", lower=0.1, upper=5.0)
    """How long it
    lasts."""
    share: float = setting(0.5, "-", above=0.0, below=1.0)
    """Part of it."""
    count: int = setting(3, "-", lower=1)
    """How many."""
    method: str = setting("fast", choices=("fast", "exact"))
    """How."""
    terms: tuple[str, ...] = setting((), choices=("a", "b"))
    """Which."""
    times: tuple[float, ...] = setting((1.0,), "s", lower=0.5)
    """When."""
    colour: Colour = setting(Colour.RED)
    """In which colour."""
    offset: np.ndarray | None = setting(None, "Nm", upper=1.0, library_only=True)
    """What is added."""
    plain: object = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count > 10 * self.duration:
            raise ParameterOutOfRange("count [-]", self.count, "at most ten per second")


@dataclass(frozen=True)
class Derived(Example, library_only=True):
    """With one more."""

    width: float = setting(1.0, "m", lower=0.0)
    """How wide."""


def test_defaults_and_ends_are_allowed():
    Example()
    Example(duration=0.1, share=1e-9, count=1, method="exact", terms=("b", "a"), times=(0.5,), offset=np.ones(3))
    Example(duration=5.0, colour=Colour.BLUE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"duration": 5.1}, r"duration \[s\] 5.1: expected from 0.1 to 5$"),
        ({"duration": math.nan}, r"duration \[s\] nan"),
        ({"share": 0.0}, r"share \[-\] 0.0: expected above 0, below 1$"),
        ({"share": 1.0}, r"share \[-\] 1.0"),
        ({"count": 0}, "expected at least 1$"),
        ({"method": "slow"}, "method 'slow': expected one of fast, exact$"),
        ({"terms": ("a", "c")}, "terms .*: expected one of a, b$"),
        ({"times": (1.0, 0.4)}, r"times \[s\]"),
        ({"colour": "green"}, "colour 'green': expected one of red, blue$"),
        ({"offset": np.array([0.0, 2.0])}, r"offset \[Nm\]"),
        ({"count": 30}, "at most ten per second"),
    ],
)
def test_what_is_not_allowed_is_refused_with_unit_and_range(given, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        Example(**given)


def test_descriptions_are_the_docstrings_of_the_fields():
    info = settings_of(Example)
    assert info["duration"].description == "How long it lasts"
    assert (info["duration"].unit, info["duration"].lower, info["duration"].upper) == ("s", 0.1, 5.0)
    assert info["colour"].choices == ("red", "blue")
    assert "plain" not in info
    assert settings_of(Derived)["share"].description == "Part of it"
    assert settings_of(Derived)["width"].description == "How wide"


def test_without_source_there_are_settings_without_descriptions(monkeypatch):
    @dataclass(frozen=True)
    class Compiled(Settings):
        gain: float = setting(1.0, "-", lower=0.0)
        """How much."""

    def missing(_):
        raise OSError("source code not available")

    monkeypatch.setattr("inspect.getsource", missing)
    assert settings_of(Compiled)["gain"].description == "" and settings_of(Compiled)["gain"].lower == 0.0


def test_fields_and_whole_classes_can_be_for_the_library_only():
    assert [name for name, info in settings_of(Example).items() if info.library_only] == ["offset"]
    assert all(info.library_only for info in settings_of(Derived).values())
