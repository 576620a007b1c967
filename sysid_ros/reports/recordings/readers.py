"""What all readers of recorded samples share: the recording itself, and how raw samples become one.

docs/reference/files.md describes the file forms. Whatever a file holds, it leaves here in SI units, in the robot's
joint order and with every fault named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.options import InvalidRecording
from sysid_ros.reports.torque_fit import derivative_weights, differentiate

Array = NDArray[np.float64]


Watch = Callable[[float], bool]
"""Called with the share of a file that is read, 0 to 1; where it returns False, reading ends there as at a cut."""
WATCHED = 500
"""Messages between two calls of a :data:`Watch`."""


def counted(number: int, thing: str) -> str:
    """Return how many there are of something, in words."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def read_all(share: float) -> bool:
    """Let everything be read; a :data:`Watch`."""
    return share >= 0.0


def describe_stop(share: float) -> str:
    """Say that reading was ended on request."""
    return f"reading was stopped after {100.0 * share:.0f} % of the file; what comes later was not read"


@dataclass(frozen=True)
class Recording:
    """Recorded samples, in the robot's joint order.

    Attributes:
        source: Name of the file.
        batches: Consecutive samples in order of arrival, in the portions they came in.
        payload_epochs: Of each batch: rises when the payload was announced to have changed.
        reference_q: Desired positions of all samples, (N, n) [rad], None where unknown.
        reference_v: Desired velocities, (N, n) [rad/s], None where unknown.
        commanded_tau: Commanded torques, (N, n) [Nm], None where unknown.
        velocity_error: Largest error of velocities that were computed from positions, (n,) [rad/s]; None where they
            were measured.
        metadata: Texts the recording carries, by name.
        notices: What was found and mended, a sentence each.
        caveats: Why no bounds from this recording are guaranteed, a sentence each.
    """

    source: str
    batches: tuple[SampleBlock, ...]
    payload_epochs: tuple[int, ...]
    reference_q: Array | None = None
    reference_v: Array | None = None
    commanded_tau: Array | None = None
    velocity_error: Array | None = None
    metadata: Mapping[str, str] | None = None
    notices: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    @property
    def samples(self) -> SampleBlock:
        """All samples as one block."""
        return SampleBlock.concatenate(self.batches)

    def cut(self, count: int) -> Recording:
        """Return the recording of the first samples alone, at least one."""
        ends = np.cumsum([len(batch) for batch in self.batches])
        whole = int(np.searchsorted(ends, count, side="left")) + 1
        batches = list(self.batches[:whole])
        batches[-1] = batches[-1].slice(0, count - int(ends[whole - 1]) + len(batches[-1]))
        names = ("reference_q", "reference_v", "commanded_tau")
        known = {name: array[:count] for name in names if (array := getattr(self, name)) is not None}
        return replace(self, batches=tuple(batches), payload_epochs=self.payload_epochs[:whole], **known)


def with_velocity_error(robot: RobotModel, recording: Recording) -> RobotModel:
    """Return the robot with an error of the velocity that covers computed velocities."""
    if recording.velocity_error is None:
        return robot
    error = np.maximum(robot.sensors.velocity_error, recording.velocity_error)
    # What the robot file says of the mean is about the velocities of its own sensors.
    sensors = replace(robot.sensors, velocity_error=error, velocity_mean_error=np.inf)
    return replace(robot, sensors=sensors)


def missing_joints(path: Path, robot: RobotModel, missing: Sequence[str], names: Sequence[str]) -> InvalidRecording:
    """Return the error of a file that lacks joints, with the names it has instead and what to write."""
    others = [name for name in names if name not in robot.joint_names]
    found = f"without {', '.join(missing)}" + (f"; the file has {', '.join(names)}" if names else "")
    allowed = "all joints of the arm that --model names; where only the names are others: --map NAME=JOINT"
    if len(others) == len(missing):
        pairs = " ".join(f"--map {other}={joint}" for other, joint in zip(others, missing, strict=True))
        allowed += f", in this order {pairs}"
    return InvalidRecording(path, "the list of joints", found, allowed)


def choose_joints(path: Path, found: Sequence[str], robot: RobotModel) -> list[int]:
    """For every joint of the robot its position among the names a file gives, which may have others, too.

    Raises:
        InvalidRecording: A joint is missing or comes twice.
    """
    names = list(found)
    missing = [name for name in robot.joint_names if name not in names]
    if missing:
        raise missing_joints(path, robot, missing, names)
    twice = [name for name in robot.joint_names if names.count(name) > 1]
    if twice:
        raise InvalidRecording(path, "the list of joints", ", ".join(names), f"{twice[0]} once")
    return [names.index(name) for name in robot.joint_names]


def describe_gaps(samples: SampleBlock) -> list[str]:
    """Say where there are gaps in the stamps, if there are: more than 1.5 median periods between two samples."""
    if len(samples) < 3:
        return []
    steps = np.diff(samples.stamps)
    period = float(np.median(steps))
    gaps = np.flatnonzero(steps > 1.5 * period)
    if gaps.size == 0:
        return []
    worst = int(gaps[np.argmax(steps[gaps])])
    return [
        f"{counted(gaps.size, 'gap')} in the samples; the longest lasts {1e-9 * steps[worst]:.4g} s, "
        f"{samples.seconds[worst]:.4g} s after the first sample (usual period {1e-9 * period:.4g} s); "
        "windows are cut there"
    ]


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
    gain = np.abs(derivative_weights(length)).sum() / period
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


def cut_repeats(path: Path, stamps: NDArray[np.int64]) -> tuple[NDArray[np.bool_], list[str]]:
    """Find the samples that are not later than all before them.

    Args:
        path: The file, for errors.
        stamps: (N,) [ns].

    Returns:
        Which samples to keep, (N,), and a sentence about the others, if there are any.

    Raises:
        InvalidRecording: They are no exception: more than a tenth of all.
    """
    latest = np.maximum.accumulate(stamps)
    kept = np.concatenate([[True], stamps[1:] > latest[:-1]])
    cut = np.flatnonzero(~kept)
    if cut.size == 0:
        return kept, []
    seconds = 1e-9 * float(latest[cut[0]] - stamps[0])
    if cut.size > 0.1 * stamps.size:
        found = f"not rising in {cut.size} of {stamps.size} samples, first {seconds:.4g} s after the first sample"
        raise InvalidRecording(path, "the time", found, "rising stamps, but for a few repeated or late samples")
    text = f"{counted(cut.size, 'repeated or late sample')} left out, the first {seconds:.4g} s after the first sample"
    return kept, [text]
