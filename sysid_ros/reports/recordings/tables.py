"""Velocities of recordings that hold positions only."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.windows.samples import InvalidSamples, SampleBlock
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.readers import (
    UNITS,
    InvalidRecording,
    Recording,
    describe_gaps,
    joint_columns,
    require_plausible,
)
from sysid_ros.reports.torque_fit import differentiate

Array = NDArray[np.float64]

SHORT, LONG = 0.05, 0.08
"""Lengths of the filter windows whose difference shows the truncation error [s]."""


OUTLIER = 6.0
"""A difference of the filters of so many times the one that 10 % of the samples exceed is an outlier."""
MOST_CUT = 0.05
"""A larger share of outliers is no exception but the signal."""


def estimate_velocity(stamps: ArrayLike, q: Array, resolution: ArrayLike) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Velocity from positions, and how good it probably is.

    The error has two parts: encoder steps passed through the filter (a bound), and the curvature the filter smooths
    away (an estimate: twice the largest difference between two filter lengths). So the sum is no guarantee.

    A lost sample that the stamps do not show is a jump of the positions: both filters go wrong around it, and differ by
    far more than elsewhere. Such samples, with the reach of the filters, are outliers that do not count in the error.

    Args:
        stamps: (N,) [ns], rising.
        q: Positions, (N, n) [rad].
        resolution: Encoder step, (n,) [rad].

    Returns:
        Velocities (N, n) [rad/s], their estimated largest errors (n,) [rad/s] apart from outliers, and which samples
        are outliers, (N,).

    Raises:
        SysidError: There are too few samples to differentiate.
    """
    from scipy.signal import savgol_coeffs  # takes a second to load

    times = np.asarray(stamps, dtype=np.int64)
    period = 1e-9 * float(np.median(np.diff(times)))
    length = 2 * int(round(0.5 * SHORT / period)) + 1
    if length < 5:
        raise SysidError(
            f"velocities cannot be computed from positions sampled every {period:.4g} s; at most {SHORT / 4:.4g} s "
            "are needed, or a velocity column"
        )
    if times.size < length:
        raise SysidError(f"velocities cannot be computed from {times.size} samples; {length} are needed")
    short, long = differentiate(times, q, SHORT), differentiate(times, q, LONG)
    gain = np.abs(savgol_coeffs(length, 3, deriv=1, delta=period)).sum()
    steps = 0.5 * np.asarray(resolution, dtype=float) * gain
    difference = np.abs(short - long)
    is_outlier = _find_outliers(difference, steps, math.ceil(0.5 * LONG / period))
    return short, steps + 2.0 * difference[~is_outlier].max(axis=0), is_outlier


def _find_outliers(difference: Array, floor: Array, reach: int) -> NDArray[np.bool_]:
    """Return the samples near differences (N, n) far above the others, (N,); none if there are too many."""
    usual = np.quantile(difference, 0.9, axis=0) + floor
    places = np.flatnonzero(np.any(difference > OUTLIER * usual, axis=1))
    result = np.zeros(len(difference), dtype=bool)
    for place in places:
        result[max(0, place - reach) : place + reach + 1] = True
    return result if result.mean() <= MOST_CUT else np.zeros_like(result)


_REQUIRED = ("t", "q", "tau")
_QUANTITIES = ("t", "q", "v", "tau")
_HEADER_KEYS = ("joints", "units", "effort_sign")


def read_csv(path: Path, robot: RobotModel) -> Recording:
    """Read a CSV file: ``# key: value`` lines, one line of column names, then one line per sample.

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
    names = [name.strip() for name in rest[0][1].split(",")]
    values = _parse_rows(path, rest[1:], names)
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
        arrays[quantity] = _times(rest[1:], names.index("t"), columns[:, 0]) if quantity == "t" else columns
    return _to_recording(path, robot, header, joints, arrays)


def read_npz(path: Path, robot: RobotModel) -> Recording:
    """Read an NPZ file with arrays ``t``, ``q``, ``tau``, optionally ``v``, and texts ``joints``, ``units``.

    Raises:
        InvalidRecording: An array or a text is missing or cannot be used.
        JointNotFound: It names a joint the robot does not have.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            contents = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidRecording(
            path, "the file", f"unreadable ({error})", "an NPZ file without pickled objects"
        ) from error
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
    return _to_recording(path, robot, header, joints, arrays)


def _to_recording(
    path: Path, robot: RobotModel, header: Mapping[str, str], joints: list[str], arrays: Mapping[str, NDArray]
) -> Recording:
    order = joint_columns(path, joints, robot)
    units = _units(path, header, arrays)
    sign = _effort_sign(path, header)
    stamps = _stamps(path, arrays["t"], units["t"])
    q = units["q"] * np.asarray(arrays["q"], dtype=float)[:, order]
    tau = sign * units["tau"] * np.asarray(arrays["tau"], dtype=float)[:, order]
    for name, values in (("q", q), ("tau", tau), ("v", arrays.get("v", q))):
        _require_finite(path, name, np.asarray(values, dtype=float), joints, order)
    caveats, velocity_error, is_outlier = [], None, np.zeros(stamps.size, dtype=bool)
    if "v" in arrays:
        v = units["v"] * np.asarray(arrays["v"], dtype=float)[:, order]
    else:
        try:
            v, velocity_error, is_outlier = estimate_velocity(stamps, q, robot.sensors.position_resolution)
        except SysidError as error:
            raise InvalidRecording(path, "the velocity", "missing", f"columns of velocities; {error}") from error
        worst = int(np.argmax(velocity_error))
        caveats.append(
            "the velocities were computed from the positions and are taken as good to "
            f"{velocity_error[worst]:.3g} rad/s ({robot.joint_names[worst]}, the others better), which the data "
            "suggest but nothing proves"
        )
    try:
        kept = ~is_outlier
        # The counter jumps where samples are cut out, so no window spans the place.
        samples = SampleBlock(stamps[kept], np.flatnonzero(kept), q[kept], v[kept], tau[kept])
    except InvalidSamples as error:
        raise InvalidRecording(path, error.field, error.reason, "finite numbers in rising order of time") from error
    require_plausible(path, robot, samples)
    return Recording(
        path.name,
        (samples,),
        (0,),
        velocity_error=velocity_error,
        metadata={},
        notices=(*describe_gaps(samples), *_describe_cuts(stamps, is_outlier)),
        caveats=tuple(caveats),
    )


def _describe_cuts(stamps: NDArray[np.int64], is_outlier: NDArray[np.bool_]) -> list[str]:
    """Say where samples were cut out, if there are any."""
    starts = np.flatnonzero(np.diff(np.concatenate([[0], is_outlier.astype(np.int8)])) == 1)
    if not starts.size:
        return []
    seconds = 1e-9 * float(stamps[starts[0]] - stamps[0])
    return [
        f"{np.count_nonzero(is_outlier)} samples cut out at {starts.size} places, the first {seconds:.4g} s after the "
        "first sample: the positions jump there as after lost samples, and velocities from them are outliers; the "
        "error of the velocities is that of the other samples"
    ]


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


def _parse_rows(path: Path, rows: list[tuple[int, str]], names: list[str]) -> Array:
    values = np.empty((len(rows), len(names)))
    for k, (number, text) in enumerate(rows):
        words = text.split(",")
        if len(words) != len(names):
            raise InvalidRecording(
                path, f"the number of values in line {number}", len(words), f"{len(names)}, one per column"
            )
        try:
            values[k] = [float(word) for word in words]
        except ValueError:
            bad = next(i for i, word in enumerate(words) if not _is_number(word))
            raise InvalidRecording(
                path, f"column '{names[bad]}' in line {number}", repr(words[bad].strip()), "a number"
            ) from None
    return values


def _times(rows: list[tuple[int, str]], column: int, values: Array) -> NDArray:
    """Return the time column; as integers where it was written without a decimal point."""
    words = [text.split(",")[column].strip() for _, text in rows]
    if all(re.fullmatch(r"[+-]?\d+", word) for word in words):
        return np.array([int(word) for word in words], dtype=np.int64)
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
    steps = np.diff(stamps)
    bad = np.flatnonzero(steps <= 0)
    if bad.size:
        k = int(bad[0])
        raise InvalidRecording(
            path, f"t in sample {k + 1}", f"{t[k + 1]} after {t[k]}", "rising stamps, no repeated or late samples"
        )
    if np.median(steps) > 0.1e9:
        raise InvalidRecording(
            path, "the usual time between samples", f"{1e-9 * np.median(steps):.4g} s",
            "at most 0.1 s; t may be in another unit: say 't=ms' or 't=ns'",
        )  # fmt: skip
    return stamps


def _require_finite(path: Path, name: str, values: Array, joints: list[str], order: list[int]) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        sample, column = bad[0]
        joint = joints[column] if name == "v" else joints[order[column]]
        raise InvalidRecording(path, f"{name} of {joint} in sample {sample}", values[sample, column], "a finite number")
