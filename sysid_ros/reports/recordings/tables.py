"""Reads tables of samples: CSV files with a small header, and NPZ files."""

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
from sysid_ros.reports.recordings.readers import (
    CLEAR,
    UNITS,
    InvalidRecording,
    RawSamples,
    ReadOptions,
    Recording,
    Watch,
    cut_repeats,
    describe_stop,
    gravity_agreement,
    joint_columns,
    make_recording,
    read_all,
)

Array = NDArray[np.float64]

_PIECE = 20_000
"""Rows that are parsed at once."""
_REQUIRED = ("t", "q", "tau")
_QUANTITIES = ("t", "q", "v", "tau")
_HEADER_KEYS = ("joints", "units", "effort_sign")


@dataclass(frozen=True)
class _Table:
    """What a table holds: texts by key, the joints in the order of the columns, and arrays by quantity."""

    header: Mapping[str, str]
    joints: list[str]
    arrays: Mapping[str, NDArray]


def read_csv(path: Path, robot: RobotModel, options: ReadOptions, watch: Watch = read_all) -> Recording:
    """Read a CSV file: ``# key: value`` lines, one line of column names, then one line per sample.

    ``watch`` is told how far it is, and may end it.

    Raises:
        InvalidRecording: Header, columns or numbers cannot be used.
        JointNotFound: It names a joint the robot does not have.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRecording(path, "the text", f"unreadable ({error})", "UTF-8 text") from error
    header, rest = _split_header(path, lines)
    if not rest:
        raise InvalidRecording(path, "the number of data lines", 0, "a line of column names and one line per sample")
    separator = ";" if ";" in rest[0][1] else ","
    names = [name.strip() for name in rest[0][1].split(separator)]
    values, stops = _parse_in_pieces(path, rest[1:], names, separator, watch)
    rest = rest[: 1 + len(values)]
    joints = _listed(path, header, "joints")
    arrays: dict[str, Array] = {}
    for quantity in _QUANTITIES:
        wanted = [quantity] if quantity == "t" else [f"{quantity}_{joint}" for joint in joints]
        if quantity == "v" and not any(name in names for name in wanted):
            continue
        for name in wanted:
            if names.count(name) != 1:
                found = "missing" if name not in names else "there more than once"
                raise InvalidRecording(path, f"column '{name}'", found, f"once; the file has {', '.join(names)}")
        columns = values[:, [names.index(name) for name in wanted]]
        arrays[quantity] = columns
    arrays["t"] = _times([text.split(separator)[names.index("t")] for _, text in rest[1:]], arrays["t"][:, 0])
    recording = _to_recording(path, robot, _Table(header, joints, arrays), options)
    return replace(recording, notices=(*recording.notices, *stops))


def read_npz(path: Path, robot: RobotModel, options: ReadOptions) -> Recording:
    """Read an NPZ file with arrays ``t``, ``q``, ``tau``, optionally ``v``, and texts ``joints``, ``units``.

    Raises:
        InvalidRecording: An array or a text is missing or cannot be used.
        JointNotFound: It names a joint the robot does not have.
    """
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
    joints = _listed(path, header, "joints")
    arrays = {name: np.asarray(contents[name]) for name in _QUANTITIES if name in contents}
    for name, array in arrays.items():
        if not (np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating)):
            raise InvalidRecording(path, f"the type of array '{name}'", array.dtype, "numbers")
        expected = (arrays["t"].size,) if name == "t" else (arrays["t"].size, len(joints))
        if array.shape != expected:
            raise InvalidRecording(path, f"the shape of array '{name}'", array.shape, f"{expected} (samples, joints)")
    return _to_recording(path, robot, _Table(header, joints, arrays), options)


def write_npz(path: Path, robot: RobotModel, recording: Recording) -> None:
    """Write a recording as a table that :func:`read_npz` reads.

    Velocities that were computed are left out, so that they are computed again, and named as such, by whoever reads it.

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


def _split_header(path: Path, lines: list[str]) -> tuple[dict[str, str], list[tuple[int, str]]]:
    """Return the ``# key: value`` lines, and the other lines with their numbers."""
    header: dict[str, str] = {}
    rest = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        match = re.match(r"#\s*(\w+)\s*:\s*(.*)", text)
        if match and match.group(1) in _HEADER_KEYS:
            header[match.group(1)] = match.group(2)
        elif text and not text.startswith("#"):
            rest.append((number, text))
    for key in ("joints", "units"):
        if key not in header:
            raise InvalidRecording(path, f"the header line '# {key}: ...'", "missing", _header_example(key))
    return header, rest


def _header_example(key: str) -> str:
    examples = {"joints": "# joints: joint_1, joint_2", "units": "# units: t=s, q=rad, v=rad/s, tau=Nm"}
    return f"a line like '{examples[key]}' before the column names"


def _parse_in_pieces(
    path: Path, rows: list[tuple[int, str]], names: list[str], separator: str, watch: Watch
) -> tuple[Array, list[str]]:
    """Return the numbers, and what is to be said where reading was ended early."""
    pieces = [np.empty((0, len(names)))]
    for start in range(0, len(rows), _PIECE):
        if not watch(start / len(rows)):
            return np.concatenate(pieces), [describe_stop(start / len(rows))]
        pieces.append(_parse_rows(path, rows[start : start + _PIECE], names, separator))
    return np.concatenate(pieces), []


def _parse_rows(path: Path, rows: list[tuple[int, str]], names: list[str], separator: str) -> Array:
    try:
        values = np.loadtxt([text for _, text in rows], delimiter=separator, ndmin=2, comments=None)
        if values.shape[1:] == (len(names),):
            return values
    except ValueError:
        pass  # what is wrong, and where, is found line by line
    values = np.empty((len(rows), len(names)))
    for k, (number, text) in enumerate(rows):
        words = text.split(separator)
        if len(words) != len(names):
            raise InvalidRecording(
                path, f"the number of values in line {number}", len(words), f"{len(names)}, one per column"
            )
        bad = next((i for i, word in enumerate(words) if not _is_number(word)), None)
        if bad is not None:
            what = f"column '{names[bad]}' in line {number}"
            raise InvalidRecording(path, what, repr(words[bad].strip()), "a number, with a point for decimals")
        values[k] = [float(word) for word in words]
    return values


def _times(words: list[str], values: Array) -> NDArray:
    """Return the time column (N,), as integers where it was written without a decimal point."""
    try:
        return np.array(words).astype(np.int64)
    except ValueError:
        return values


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _listed(path: Path, header: Mapping[str, str], key: str) -> list[str]:
    if key not in header:
        raise InvalidRecording(path, f"'{key}'", "missing", "the names of the joints, in the order of the columns")
    return [word for word in re.split(r"[,\s]+", header[key]) if word]


def _units(path: Path, header: Mapping[str, str], arrays: Mapping[str, NDArray]) -> dict[str, float]:
    """Size of each quantity's unit in SI."""
    if "units" not in header:
        raise InvalidRecording(path, "'units'", "missing", "text like 't=s, q=rad, v=rad/s, tau=Nm'")
    given = {}
    for word in re.split(r"[,\s]+", header["units"]):
        if not word:
            continue
        name, _, unit = word.partition("=")
        if name not in UNITS or unit not in UNITS[name]:
            allowed = "; ".join(f"{quantity}={' or '.join(units)}" for quantity, units in UNITS.items())
            raise InvalidRecording(path, f"the unit '{word}'", "unknown", allowed)
        given[name] = UNITS[name][unit]
    for name in arrays:
        if name not in given:
            raise InvalidRecording(path, f"the unit of {name}", "missing", f"{name}=" + " or ".join(UNITS[name]))
    return given


def _effort_sign(path: Path, header: Mapping[str, str]) -> float:
    text = header.get("effort_sign", "1")
    if not _is_number(text) or float(text) not in (1.0, -1.0):
        raise InvalidRecording(path, "effort_sign", text, "1 (tau is in joint direction) or -1 (tau is against it)")
    return float(text)


def _stamps(path: Path, t: NDArray, unit: float) -> NDArray[np.int64]:
    """Stamps [ns]; integers are taken as they are: a float cannot hold today's epoch to the nanosecond."""
    if t.size < 2:
        raise InvalidRecording(path, "the number of samples", t.size, "at least 2")
    if np.issubdtype(t.dtype, np.integer):
        stamps = t.astype(np.int64) * int(round(unit * 1e9))
    else:
        bad = np.flatnonzero(~np.isfinite(t))
        if bad.size:
            raise InvalidRecording(path, f"t in sample {bad[0]}", t[bad[0]], "a finite number")
        # Counted from the first sample: differences are exact to far less than a nanosecond, sums are not.
        start = int(round(float(t[0]) * unit * 1e9))
        stamps = start + np.rint((t - t[0]) * (unit * 1e9)).astype(np.int64)
    usual = np.median(np.abs(np.diff(stamps)))
    if usual > 0.1e9:
        raise InvalidRecording(
            path, "the usual time between samples", f"{1e-9 * usual:.4g} s",
            "at most 0.1 s; t may be in another unit: say 't=ms' or 't=ns'",
        )  # fmt: skip
    return stamps


def _to_recording(path: Path, robot: RobotModel, table: _Table, options: ReadOptions) -> Recording:
    header, arrays = table.header, table.arrays
    order = joint_columns(path, [options.joint_names.get(name, name) for name in table.joints], robot)
    units = _units(path, header, arrays)
    stamps = _stamps(path, arrays["t"], units["t"])
    kept, notices = cut_repeats(path, stamps)
    q, tau = (units[name] * np.asarray(arrays[name], dtype=float)[kept][:, order] for name in ("q", "tau"))
    v = units["v"] * np.asarray(arrays["v"], dtype=float)[kept][:, order] if "v" in arrays else None
    is_stated = "effort_sign" in header or options.effort_sign is not None
    sign = _effort_sign(path, header) if options.effort_sign is None else options.effort_sign
    raw = RawSamples(stamps[kept], q, v, sign * tau, tuple(notices))
    if not is_stated and np.isfinite(q).all() and np.isfinite(tau).all():
        agreement = gravity_agreement(robot, q, tau)
        if agreement < -CLEAR:
            raise InvalidRecording(
                path, "the agreement of tau with the torques against gravity", f"{agreement:.2f}",
                "positive; tau may be measured against the joint direction: say 'effort_sign: -1', or 'effort_sign: 1' "
                "if it is as it should be",
            )  # fmt: skip
    return make_recording(path, robot, raw)
