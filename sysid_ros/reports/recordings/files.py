"""Reads a recording of whatever form: MCAP, CSV or NPZ."""

from __future__ import annotations

from pathlib import Path

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.mcap import read_mcap
from sysid_ros.reports.recordings.readers import SUFFIXES, InvalidRecording, Recording
from sysid_ros.reports.recordings.tables import read_csv, read_npz


def read_recording(path: Path | str, robot: RobotModel, topic: str | None = None) -> Recording:
    """Read samples from a file, by its ending.

    Args:
        path: ``.mcap``, ``.csv`` or ``.npz``.
        robot: The arm that was recorded.
        topic: Topic of the sample batches in an MCAP file; None takes the only one.

    Raises:
        InvalidRecording: The file is missing or cannot be used; says what, where and what is allowed.
        JointNotFound: It names a joint the robot does not have.
    """
    file = Path(path)
    if file.suffix.lower() not in SUFFIXES:
        raise InvalidRecording(file, "the ending", f"'{file.suffix}'", "one of " + ", ".join(SUFFIXES))
    if not file.is_file():
        raise InvalidRecording(file, "the file", "missing" if not file.exists() else "not a file", "a readable file")
    if file.suffix.lower() == ".mcap":
        return read_mcap(file, robot, topic)
    return read_csv(file, robot) if file.suffix.lower() == ".csv" else read_npz(file, robot)
