"""Finds the columns of a table: its time, and positions, velocities and torques of joints, by name.

Tables come from loggers, from PlotJuggler, from ``numpy.savetxt`` and from spreadsheets, and all name columns in ways
of their own: ``q_joint_1``, ``joint_1/position``, ``/joint_states/effort[0]``, ``time [ms]``. What is found is by name,
never by place, but for numbers that count all joints; open questions are asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.options import UNITS, InvalidRecording, ReadOptions
from sysid_ros.reports.recordings.readers import missing_joints

_WORDS: Mapping[str, str] = {
    "q": "positions?|pos|qpos|angles?|q",
    "v": "velocity|velocities|vel|speeds?|qvel|qdot|qd|dq|v",
    "tau": "efforts?|torques?|tau_j|tau",
}
"""Words for a quantity, as a regular expression."""
_BEFORE = r"^(?:.*[/.])?(?:(?:actual|measured|joint)[ _]?)*"
_GAP = r"[ _./:\-]+"
_NOT_MEASURED = re.compile(r"desired|reference|target|command|setpoint|goal|error|ext(ernal)?[_ ]", re.IGNORECASE)
_TIMES = ("t", "stamp", "timestamp", "time_stamp", "time", "seconds", "elapsed", "elapsed_time")
"""Words for the time; the first that is there counts."""
_SPELLINGS: Mapping[str, str] = {
    "°": "deg", "degree": "deg", "degrees": "deg", "radian": "rad", "radians": "rad", "°/s": "deg/s", "n m": "Nm",
    "n*m": "Nm", "n·m": "Nm", "nm": "Nm", "mnm": "mNm", "sec": "s", "second": "s", "seconds": "s", "µs": "us",
}  # fmt: skip
_SHOWN = 30
"""Names that a message lists at most."""


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are.

    Attributes:
        time: The column of the time, or the pair of seconds and nanoseconds.
        joints: Of ``q``, ``tau`` and, where there are all, ``v`` the columns in the robot's joint order.
        units: Units in the names, by quantity.
        notices: What was chosen among several, a sentence each.
    """

    time: tuple[int, ...]
    joints: Mapping[str, tuple[int, ...]]
    units: Mapping[str, str]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Name:
    """A name of a column, without its unit."""

    base: str
    unit: str


def find_columns(path: Path, names: Sequence[str], robot: RobotModel, options: ReadOptions) -> Columns:
    """Find time and joints among the columns of a table.

    Args:
        path: The table, for errors.
        names: Names of the columns, as they are written.
        robot: The arm; columns of other joints are ignored.
        options: Names of joints that are others, and ``topics`` with which the names of the columns must begin.

    Raises:
        InvalidRecording: A column is missing, or there more than once, or names a unit that is unknown.
    """
    parsed = [_without_unit(path, name) for name in names]
    time, notices = _find_time(path, names, parsed, options.joint_names)
    meant = [
        (place, quantity, rest)
        for place, name in enumerate(parsed)
        if place not in time
        and not _NOT_MEASURED.search(name.base)
        and (not options.topics or names[place].strip().strip("\"'").startswith(options.topics))
        for quantity, rest in _interpret(name.base)
    ]
    numbers, counted = _numbers_of(robot), {rest for _, quantity, rest in meant if quantity == "q"}
    if not numbers.keys() <= counted or not numbers:  # they count from elsewhere: one for each joint, in order
        of_joints = sorted((rest for rest in counted if rest.isdecimal()), key=int)
        is_count = [int(rest) for rest in of_joints] in (list(range(robot.n)), list(range(1, robot.n + 1)))
        numbers = dict(zip(of_joints, robot.joint_names, strict=True)) if is_count else {}
        if numbers and not numbers.keys() & options.joint_names.keys():
            ends = f"{of_joints[0]} to {of_joints[-1]} are taken to be {', '.join(robot.joint_names)} in this order"
            notices.append(f"joints {ends}; --map NAME=JOINT says others")
    found: dict[str, dict[str, list[int]]] = {quantity: {} for quantity in _WORDS}
    others: list[str] = []
    for place, quantity, rest in meant:
        joint = _joint_of(rest, robot, {**numbers, **options.joint_names})
        if joint is not None:
            found[quantity].setdefault(joint, []).append(place)
        elif quantity == "q":
            others.append(rest)
    known = {joint for of_quantity in found.values() for joint in of_quantity}
    lacking = [joint for joint in robot.joint_names if joint not in known]
    if lacking and others:
        raise missing_joints(path, robot, lacking, [*sorted(known), *dict.fromkeys(others)])
    joints, units = {}, {}
    if len(time) == 1 and parsed[time[0]].unit:
        units["t"] = _unit(path, "t", names[time[0]], parsed[time[0]].unit)
    for quantity, of_quantity in found.items():
        if quantity == "v" and not all(joint in of_quantity for joint in robot.joint_names):
            continue
        joints[quantity] = tuple(_only(path, names, quantity, joint, of_quantity) for joint in robot.joint_names)
        told = {_unit(path, quantity, names[k], parsed[k].unit) for k in joints[quantity] if parsed[k].unit}
        if len(told) > 1:
            raise InvalidRecording(path, f"the unit of {quantity}", " and ".join(sorted(told)), "one for all joints")
        if told:
            (units[quantity],) = told
    return Columns(time, joints, units, tuple(notices))


def _without_unit(path: Path, name: str) -> _Name:
    """Split a unit in brackets off; brackets around a number are an index and become ``.0``."""
    text = name.strip().strip("\"'%").strip()
    match = re.search(r"[\[(]([^\[\]()]*)[\])]$", text)
    if match is None:
        return _Name(text, "")
    before, inside = text[: match.start()].rstrip(), match[1].strip()
    return _Name(f"{before}.{inside}", "") if inside.isdecimal() else _Name(before, inside)


def _unit(path: Path, quantity: str, name: str, text: str) -> str:
    unit = text if text in UNITS[quantity] else _SPELLINGS.get(text.lower(), text.lower())
    if unit not in UNITS[quantity]:
        raise InvalidRecording(path, f"the unit of column '{name}'", f"'{text}'", " or ".join(UNITS[quantity]))
    return unit


def _find_time(
    path: Path, names: Sequence[str], parsed: list[_Name], given: Mapping[str, str]
) -> tuple[tuple[int, ...], list[str]]:
    """Return the column of the time, or the pair of seconds and nanoseconds, and the unused ones."""
    words = [re.split(r"[/.]", name.base.lower())[-1].strip("_") for name in parsed]
    stated = [k for k, name in enumerate(parsed) if "t" in (given.get(name.base), given.get(names[k].strip()))]
    if len(stated) == 1:
        return (stated[0],), []
    pairs = [
        (words.index(seconds), words.index(rest))
        for seconds, rest in (("sec", "nanosec"), ("secs", "nsecs"))
        if seconds in words and rest in words
    ]
    if pairs:
        return pairs[0], []
    ranked = []
    for place, word in enumerate(words):
        base, _, unit = word.rpartition("_")
        if word in _TIMES:
            ranked.append((_TIMES.index(word), place))
        elif base in _TIMES and unit in UNITS["t"]:
            ranked.append((_TIMES.index(base), place))
            parsed[place] = _Name(base, unit)
    others = [k for k, name in enumerate(parsed) if not _interpret(name.base) and not _NOT_MEASURED.search(name.base)]
    if not ranked and len(others) == 1:
        return (others[0],), [f"the time is taken to be column '{names[others[0]].strip()}'; --map NAME=t says another"]
    if not ranked:
        allowed = f"one named {', '.join(_TIMES)}, a pair sec and nanosec, or --map NAME=t; the file has {_list(names)}"
        raise InvalidRecording(path, "column 't'", "missing", allowed)
    ranked.sort()
    if len(ranked) > 1 and ranked[0][0] == ranked[1][0]:
        both = ", ".join(names[place] for _, place in ranked[:2])
        raise InvalidRecording(path, "the column of the time", f"one of {both}", "one; rename the other")
    aside = ", ".join(f"'{names[place].strip()}'" for _, place in ranked[1:])
    told = [f"the time is column '{names[ranked[0][1]].strip()}'; {aside} was not used"] if aside else []
    return (ranked[0][1],), told


def _interpret(name: str) -> list[tuple[str, str]]:
    result = []
    for quantity, words in _WORDS.items():
        before = re.match(rf"{_BEFORE}(?:{words})(?:{_GAP}(?P<rest>.+)|(?P<digits>\d+))$", name, re.IGNORECASE)
        behind = re.match(rf"^(?P<rest>.+?){_GAP}(?:(?:actual|measured)[ _])?(?:{words})$", name, re.IGNORECASE)
        for match in (before, behind):
            if match is not None:
                result.append((quantity, match.groupdict().get("digits") or match["rest"]))
    return result


def _joint_of(text: str, robot: RobotModel, given: Mapping[str, str]) -> str | None:
    for one in (text, re.split(r"[/.]", text)[-1]):
        name = given.get(one, one)
        if name in robot.joint_names:
            return name
        same = [joint for joint in robot.joint_names if _plain(joint) == _plain(name)]
        if len(same) == 1:
            return same[0]
    return None


def _numbers_of(robot: RobotModel) -> dict[str, str]:
    """Return the joints by the numbers at the ends of their names; none where one has no number of its own."""
    matches = [re.search(r"\d+$", joint) for joint in robot.joint_names]
    numbers = {match[0]: joint for match, joint in zip(matches, robot.joint_names, strict=True) if match}
    return numbers if len(numbers) == robot.n else {}


def _plain(name: str) -> str:
    return re.sub(r"[ _\-]", "", name).lower()


def _only(path: Path, names: Sequence[str], quantity: str, joint: str, found: Mapping[str, list[int]]) -> int:
    places = found.get(joint, [])
    if not places:
        allowed = f"a column for every joint; the file has {_list(names)}"
        raise InvalidRecording(path, f"column '{quantity}_{joint}'", "missing", allowed)
    if len(places) > 1:
        several = ", ".join(names[place].strip() for place in places)
        allowed = "once: choose with --topic, which is how the names of the right columns begin"
        raise InvalidRecording(path, f"column '{quantity}_{joint}'", f"there more than once ({several})", allowed)
    return places[0]


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(name.strip() for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
