"""Reads recorded samples: recordings of this suite (MCAP), and CSV or NPZ files with a small header.

docs/reference/files.md describes the file forms. Whatever a file holds, it leaves here in SI units, in the robot's
joint order and with every fault named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import JointNotFound, SysidError
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

SUFFIXES = (".mcap", ".csv", ".npz")
UNITS: Mapping[str, Mapping[str, float]] = {
    "t": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "q": {"rad": 1.0, "deg": np.pi / 180.0},
    "v": {"rad/s": 1.0, "deg/s": np.pi / 180.0},
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
        super().__init__(f"{self.path.name}: {what} is {value}; allowed: {allowed}")


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


def joint_columns(path: Path, found: Sequence[str], robot: RobotModel) -> list[int]:
    """For every joint of the robot its position among the names a file gives.

    Raises:
        JointNotFound: A name is not one of the robot's.
        InvalidRecording: A name comes twice or a joint is missing.
    """
    names = list(found)
    for name in names:
        if name not in robot.joint_names:
            raise JointNotFound(name, robot.joint_names)
    allowed = "each of " + ", ".join(robot.joint_names) + " once"
    missing = [name for name in robot.joint_names if name not in names]
    if missing:
        raise InvalidRecording(path, "the list of joints", f"without {', '.join(missing)}", allowed)
    if len(names) != robot.n:
        raise InvalidRecording(path, "the list of joints", ", ".join(names), allowed)
    return [names.index(name) for name in robot.joint_names]


def require_plausible(path: Path, robot: RobotModel, samples: SampleBlock) -> None:
    """Refuses numbers that look like another unit: far outside what this arm can do.

    Raises:
        InvalidRecording: Names the joint, the value and the limit.
    """
    limits = robot.limits
    reach = np.where(
        np.isfinite(limits.q_lower) & np.isfinite(limits.q_upper),
        np.maximum(np.abs(limits.q_lower), np.abs(limits.q_upper)) + 0.5,
        50.0,
    )
    checks = (
        ("position", samples.q, reach, "rad", "they may be in degrees: say 'q=deg'"),
        ("velocity", samples.v, 3.0 * limits.v_max, "rad/s", "they may be in degrees per second: say 'v=deg/s'"),
        ("torque", samples.tau, 5.0 * limits.tau_max, "Nm", "they may be in mNm: say 'tau=mNm'"),
    )
    for name, values, largest, unit, hint in checks:
        excess = np.abs(values) - largest
        if excess.size and excess.max() > 0.0:
            sample, joint = np.unravel_index(int(np.argmax(excess)), excess.shape)
            raise InvalidRecording(
                path,
                f"the {name} of {robot.joint_names[joint]} in sample {sample}",
                f"{values[sample, joint]:.6g} {unit}",
                f"-{largest[joint]:.4g} to {largest[joint]:.4g} {unit} for this arm ({hint})",
            )


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
        f"{gaps.size} gaps in the samples; the longest lasts {1e-9 * steps[worst]:.4g} s, "
        f"{samples.seconds[worst]:.4g} s after the first sample (usual period {1e-9 * period:.4g} s); "
        "windows are cut there"
    ]
