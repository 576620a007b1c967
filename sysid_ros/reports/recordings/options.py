"""Facts that a file of samples may leave open, and checks without reading it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError

BAGS = (".mcap", ".db3", ".bag")
"""Endings of bags; a folder of rosbag2 is one, too."""
SUFFIXES = (*BAGS, ".csv", ".npz")
UNITS: Mapping[str, Mapping[str, float]] = {
    "t": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12},
    "q": {"rad": 1.0, "deg": math.pi / 180.0},
    "v": {"rad/s": 1.0, "deg/s": math.pi / 180.0},
    "tau": {"Nm": 1.0, "mNm": 1e-3},
}
"""Units a file may name for each quantity, and what one of them is in SI."""


class InvalidRecording(SysidError):
    """A file of samples that cannot be used.

    Args:
        path: The file.
        what: What is at fault in it.
        value: What was found.
        allowed: What is allowed, in words.
    """

    def __init__(self, path: Path | str, what: str, value: object, allowed: str):
        self.path = Path(path)
        self.what = what
        self.value = value
        self.allowed = allowed
        super().__init__(f"{self.path.name or self.path}: {what} is {value}; expected {allowed}")


@dataclass(frozen=True)
class ReadOptions:
    """What a file of samples may leave open.

    Attributes:
        topics: Topics to read from a recording or a bag; without any all that are needed.
        joint_names: Joint of the robot for names in a bag that are others.
        units: Unit of ``q``, ``v`` or ``tau`` in a bag or table, of a table also of ``t``, where it is not SI, or not
            what the table says; one of :data:`UNITS`.
        effort_sign: 1 where efforts are in joint direction, -1 where they are against it; None asks the file and, for a
            bag, gravity.
        effort_scale: What one unit of a joint's efforts is, by joint [Nm]; that of all others by ''. Where one is
            stated, efforts that fit no payload are a caveat; else they are refused.
        needs_torques: Whether files without measured torques are refused; identifiable parameters do not depend on
            torques.

    Raises:
        ParameterOutOfRange: A unit or the sign is not one of those.
    """

    topics: tuple[str, ...] = ()
    joint_names: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    effort_sign: float | None = None
    effort_scale: Mapping[str, float] = field(default_factory=dict)
    needs_torques: bool = True

    def __post_init__(self) -> None:
        if self.effort_sign not in (None, 1.0, -1.0):
            raise ParameterOutOfRange("effort_sign", self.effort_sign, "1 or -1")
        for name, scale in self.effort_scale.items():
            if not 0.0 < scale < math.inf:
                raise ParameterOutOfRange("effort_scale", f"{name or 'all joints'}: {scale}", "above 0 [Nm per unit]")
        for name, unit in self.units.items():
            if name not in UNITS or unit not in UNITS[name]:
                allowed = "; ".join(f"{one}={' or '.join(UNITS[one])}" for one in UNITS)
                raise ParameterOutOfRange("units", f"{name}={unit}", allowed)


def require_recording(path: Path | str) -> None:
    """Refuse what can be no file of samples.

    Raises:
        InvalidRecording: It is missing, or has another ending.
    """
    file = Path(path)
    if file.is_dir():
        return
    if not file.exists():
        raise InvalidRecording(file, "the file", "missing", "a readable file, or a folder of rosbag2")
    if file.suffix.lower() not in SUFFIXES:
        raise InvalidRecording(file, "the ending", f"'{file.suffix}'", "a folder of rosbag2 or " + ", ".join(SUFFIXES))
    if not file.is_file():
        raise InvalidRecording(file, "the file", "not a file", "a readable file")


def read_mass(text: str) -> tuple[float, float]:
    """Read ``MASS[+-TOLERANCE]`` [kg].

    Raises:
        ParameterOutOfRange: The mass or its tolerance is no number.
    """
    value, _, tolerance = text.partition("+-")
    try:
        return float(value), float(tolerance or 0.0)
    except ValueError:
        raise ParameterOutOfRange("MASS+-TOLERANCE", text, "numbers in kg, such as 1.0+-0.002") from None


def split_load(text: str) -> tuple[Path, tuple[float, float] | None]:
    """Split ``FILE[=MASS[+-TOLERANCE]]`` into the file and mass and tolerance of the load, None for the empty hand.

    Raises:
        ParameterOutOfRange: The mass or its tolerance is no number.
    """
    name, separator, mass = text.rpartition("=")
    return (Path(name), read_mass(mass)) if separator else (Path(text), None)
