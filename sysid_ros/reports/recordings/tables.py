"""Reads tables of samples: CSV files, with a small header or with columns that need none, and NPZ files."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.columns import find_columns
from sysid_ros.reports.recordings.options import UNITS, InvalidRecording, ReadOptions
from sysid_ros.reports.recordings.readers import (
    Recording,
    Watch,
    choose_joints,
    counted,
    cut_repeats,
    describe_stop,
    read_all,
)
from sysid_ros.reports.recordings.sense import RawSamples, make_recording

Array = NDArray[np.float64]

_PIECE = 20_000
"""Rows that are parsed at once."""
_FASTEST, _SLOWEST = 5e-5, 0.1
"""Times between samples by which a unit of time is recognised, and the longest one that is read [s]."""
_REQUIRED = ("t", "q", "tau")
_QUANTITIES = ("t", "q", "v", "tau")
_HEADER_KEYS = ("joints", "units", "effort_sign")


@dataclass(frozen=True)
class _Table:
    """What a table holds: texts by key, and arrays by quantity, in the robot's joint order.

    Where nothing says that it was made for this package, what it leaves open is SI, and the sign of its torques what
    gravity shows.
    """

    header: Mapping[str, str]
    arrays: Mapping[str, NDArray]  # of t (N,), of the others (N, n)
    units: Mapping[str, str]  # stated elsewhere than in the header; they count more
    is_foreign: bool = False
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Lines:
    """The lines of a CSV file."""

    header: Mapping[str, str]  # Texts of its ``# key: value`` lines
    names: list[str]  # Names of the columns
    rows: list[tuple[int, str]]  # The other lines, with their numbers
    separator: str | None  # What stands between values; None for blanks
    notices: list[str]  # What was left out, a sentence each


def read_csv(path: Path, robot: RobotModel, options: ReadOptions, watch: Watch = read_all) -> Recording:
    """Read a CSV file: a line of column names, then one line per sample.

    Before them there may be lines ``# key: value``. ``watch`` receives the progress, and may end it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRecording(path, "the text", f"unreadable ({error})", "UTF-8 text") from error
    lines = _split(path, text)
    columns = find_columns(path, lines.names, robot, options)
    used = [*columns.time, *(place for places in columns.joints.values() for place in places)]
    values, stops = _parse_in_pieces(path, lines, used, watch)
    arrays: dict[str, NDArray] = {"t": _times(lines, columns.time, values[:, : len(columns.time)])}
    first = len(columns.time)
    for quantity, places in columns.joints.items():
        arrays[quantity] = values[:, first : first + len(places)]
        first += len(places)
    is_foreign = not ("joints" in lines.header or "units" in lines.header)
    units = {**columns.units, **options.units} if is_foreign else options.units
    if len(columns.time) == 2:
        units = {**units, "t": "ns"}
    table = _Table(lines.header, arrays, units, is_foreign, (*lines.notices, *columns.notices))
    recording = _to_recording(path, robot, table, options)
    return replace(recording, notices=(*recording.notices, *stops))


def read_npz(path: Path, robot: RobotModel, options: ReadOptions) -> Recording:
    """Read an NPZ file with arrays ``t``, ``q``, ``tau``, optionally ``v``, and texts ``joints``, ``units``."""
    try:
        with np.load(path, allow_pickle=False) as file:
            contents = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        found = "there, but no NPZ file" if not zipfile.is_zipfile(path) else f"unreadable ({error})"
        raise InvalidRecording(path, "the file", found, "an NPZ file of plain arrays, as numpy.savez writes") from error
    header = {key: ", ".join(map(str, np.atleast_1d(contents[key]))) for key in _HEADER_KEYS if key in contents}
    for name in _REQUIRED:
        if name not in contents:
            found = ", ".join(contents) or "nothing"
            raise InvalidRecording(
                path, f"array '{name}'", "missing", f"t, q, tau and optionally v; the file has {found}"
            )
    if "joints" not in header:
        order = f"in the order of the columns; {robot.name} has {', '.join(robot.joint_names)}"
        raise InvalidRecording(path, "'joints'", "missing", f"the names of the joints, {order}")
    joints = re.findall(r"[^,\s]+", header["joints"])
    arrays = {name: np.asarray(contents[name]) for name in _QUANTITIES if name in contents}
    for name, array in arrays.items():
        if not (np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating)):
            raise InvalidRecording(path, f"the type of array '{name}'", array.dtype, "numbers")
        expected = (arrays["t"].size,) if name == "t" else (arrays["t"].size, len(joints))
        if array.shape != expected:
            raise InvalidRecording(path, f"the shape of array '{name}'", array.shape, f"{expected} (samples, joints)")
    places = choose_joints(path, [options.joint_names.get(name, name) for name in joints], robot)
    arrays |= {name: array[:, places] for name, array in arrays.items() if name != "t"}
    return _to_recording(path, robot, _Table(header, arrays, options.units), options)


def write_npz(path: Path, robot: RobotModel, recording: Recording) -> None:
    """Write a recording as a table that :func:`read_npz` reads.

    Velocities that were computed are left out, so that they are computed again, and named as such, by its readers.

    Raises:
        InvalidRecording: The file cannot be written.
    """
    samples = recording.samples
    arrays: dict[str, Any] = {"t": samples.stamps, "q": samples.q, "tau": samples.tau}
    if recording.velocity_error is None:
        arrays["v"] = samples.v
    texts = {"joints": list(robot.joint_names), "units": "t=ns, q=rad, v=rad/s, tau=Nm", "effort_sign": "1"}
    try:
        np.savez_compressed(path, **arrays, **texts)  # type: ignore[arg-type]  # its stub takes ** for allow_pickle
    except OSError as error:
        raise InvalidRecording(path, "the file", f"not writable ({error.strerror})", "a writable place") from error


def _split(path: Path, text: str) -> _Lines:
    header: dict[str, str] = {}
    comment = ""
    rest: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if number == 1 and re.fullmatch(r'"?sep=.?"?', line, re.IGNORECASE):  # for Excel; its lines show it, too
            continue
        match = re.match(r"#\s*(\w+)\s*:\s*(.*)", line) if line.startswith("#") else None
        if match and match.group(1) in _HEADER_KEYS:
            header[match.group(1)] = match.group(2)
        elif line.startswith("#"):
            comment = comment if rest else line.lstrip("# ")
        elif line:
            rest.append((number, line))
    if not rest:
        raise InvalidRecording(path, "the number of data lines", 0, "a line of column names and one line per sample")
    first = rest[0][1]
    names, separator = _split_names(first)
    if all(map(_is_number, names)):  # as numpy.savetxt writes it, the names are a comment
        names, separator = _split_names(comment)
        if len(names) != len(first.split(separator)) or any(map(_is_number, names)):
            found = f"missing; line {rest[0][0]} has numbers only"
            raise InvalidRecording(path, "the line of column names", found, "one before the numbers, as t,q_j1,tau_j1")
    else:
        rest = rest[1:]
    notices = []
    if rest and not text.endswith(("\n", "\r")):  # a recorder that was killed leaves half a number
        notices.append(f"line {rest[-1][0]}, the last, has no end and was left out")
        rest = rest[:-1]
    if rest and separator != "," and "," in rest[0][1] and "." not in rest[0][1]:
        rest = [(number, line.replace(",", ".")) for number, line in rest]  # decimal commas
    return _Lines(header, names, rest, separator, notices)


def _split_names(line: str) -> tuple[list[str], str | None]:
    separator = next((one for one in (";", "\t", ",") if one in line), None)
    return [name.strip() for name in line.split(separator)], separator


def _parse_in_pieces(path: Path, lines: _Lines, used: list[int], watch: Watch) -> tuple[Array, list[str]]:
    """Return the numbers of some columns, and a sentence where reading was ended early."""
    pieces = [np.empty((0, len(used)))]
    for start in range(0, len(lines.rows), _PIECE):
        if not watch(start / len(lines.rows)):
            return np.concatenate(pieces), [describe_stop(start / len(lines.rows))]
        pieces.append(_parse_rows(path, lines, lines.rows[start : start + _PIECE], used))
    return np.concatenate(pieces), []


def _parse_rows(path: Path, lines: _Lines, rows: list[tuple[int, str]], used: list[int]) -> Array:
    names, separator = lines.names, lines.separator
    if separator is None or all(text.count(separator) == len(names) - 1 for _, text in rows):
        try:
            texts = [text for _, text in rows]
            return np.loadtxt(texts, delimiter=separator, ndmin=2, comments=None, usecols=used, quotechar='"')
        except ValueError:
            pass  # the fault and its place are found line by line
    values = np.empty((len(rows), len(used)))
    for k, (number, text) in enumerate(rows):
        words = text.split(separator)
        if len(words) != len(names):
            raise InvalidRecording(
                path, f"the number of values in line {number}", len(words), f"{len(names)}, one per column"
            )
        for i, place in enumerate(used):
            word = words[place].strip().strip('"')
            try:
                values[k, i] = float(word) if word else np.nan  # an empty cell is a number that is missing
            except ValueError:
                what = f"column '{names[place]}' in line {number}"
                raise InvalidRecording(path, what, repr(word), "a number, with a point for decimals") from None
    return values


def _times(lines: _Lines, places: tuple[int, ...], values: Array) -> NDArray:
    """Return the times (N,), as integers where they were written without a decimal point; of a pair in nanoseconds."""
    rows = lines.rows[: len(values)]
    if len(places) == 1 and rows and "." in rows[0][1].split(lines.separator)[places[0]]:
        return values[:, 0]
    try:
        words = [text.split(lines.separator, max(places) + 1) for _, text in rows]
        whole = [np.array([row[place].strip('" ') for row in words]).astype(np.int64) for place in places]
    except (ValueError, IndexError):
        return values[:, 0] if len(places) == 1 else 1e9 * values[:, 0] + values[:, 1]
    return whole[0] if len(places) == 1 else whole[0] * 10**9 + whole[1]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _units(path: Path, table: _Table) -> tuple[dict[str, float], list[str]]:
    header, stated = table.header, dict(table.units)
    if "units" not in header and not table.is_foreign and any(name not in stated for name in table.arrays):
        raise InvalidRecording(path, "'units'", "missing", "text like 't=s, q=rad, v=rad/s, tau=Nm', or --units")
    given = {}
    for word in re.findall(r"[^,\s]+", header.get("units", "")):
        name, _, unit = word.partition("=")
        if name not in UNITS or unit not in UNITS[name]:
            allowed = "; ".join(f"{quantity}={' or '.join(units)}" for quantity, units in UNITS.items())
            raise InvalidRecording(path, f"the unit '{word}'", "unknown", allowed)
        given[name] = unit
    given |= stated
    missing = [name for name in table.arrays if name not in given]
    if missing and not table.is_foreign:
        name = missing[0]
        raise InvalidRecording(path, f"the unit of {name}", "missing", f"{name}=" + " or ".join(UNITS[name]))
    given |= {name: next(iter(UNITS[name])) for name in missing}
    taken = ", ".join(f"{name}={given[name]}" for name in missing)
    told = [f"units are not stated and taken to be {taken}; --units says others"] if missing else []
    return {name: UNITS[name][unit] for name, unit in given.items()}, told


def stamps_of(path: Path, t: NDArray, unit: float) -> NDArray[np.int64]:
    """Return stamps [ns] of times in a unit [s]; of integers exactly: a float does not hold today's epoch to 1 ns."""
    if t.size < 2:
        raise InvalidRecording(path, "the number of samples", t.size, "at least 2")
    if np.issubdtype(t.dtype, np.integer) and unit >= 1e-9:
        stamps = t.astype(np.int64) * int(round(unit * 1e9))
    else:
        bad = np.flatnonzero(~np.isfinite(t))
        if bad.size:
            raise InvalidRecording(path, f"t in sample {bad[0]}", t[bad[0]], "a finite number")
        # Counted from the first sample: differences are exact to far less than a nanosecond, sums are not.
        start = int(round(float(t[0]) * unit * 1e9))
        stamps = start + np.rint((t - t[0]) * (unit * 1e9)).astype(np.int64)
    return stamps


def _to_recording(path: Path, robot: RobotModel, table: _Table, options: ReadOptions) -> Recording:
    header, arrays = table.header, table.arrays
    units, told = _units(path, table)
    notices = [*table.notices, *told]
    times, has_time = arrays["t"], np.isfinite(arrays["t"])
    stamps = stamps_of(path, times[has_time], units["t"])
    usual = np.median(np.abs(np.diff(stamps)))
    if usual > 1e9 * _SLOWEST:
        step = 1e-9 * usual / units["t"]
        likely = [name for name, unit in UNITS["t"].items() if _FASTEST <= step * unit <= _SLOWEST]
        cure = f"; t may be in another unit: say --units 't={likely[0]}'" if likely else ""
        found = f"{1e-9 * usual:.4g} s"
        raise InvalidRecording(path, "the usual time between samples", found, f"at most {_SLOWEST:g} s{cure}")
    kept, repeats = cut_repeats(path, stamps)
    values = {
        name: units[name] * np.asarray(array, dtype=float)[has_time][kept]
        for name, array in arrays.items()
        if name != "t"
    }
    lacking = int(np.count_nonzero(~has_time))
    if lacking:
        notices.append(f"{counted(lacking, 'sample')} left out without a time")
    raw = RawSamples(stamps[kept], values["q"], values.get("v"), values["tau"], (*notices, *repeats))
    if options.effort_sign is None and "effort_sign" in header:
        sign = header["effort_sign"]
        if not _is_number(sign) or float(sign) not in (1.0, -1.0):
            raise InvalidRecording(path, "effort_sign", sign, "1 (tau is in joint direction) or -1 (tau is against it)")
        options = replace(options, effort_sign=float(sign))
    return make_recording(path, robot, raw, options, None if table.is_foreign else 1.0)
