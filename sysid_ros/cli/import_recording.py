"""Turns a recording into a table in SI units and the robot's joint order: ``sysid import BAG --model my_arm.yaml``.

What every command does with a bag, done once and kept: joints by name, sign of the efforts, samples left out, and
velocities where nobody measured them. Ctrl-C keeps what was read by then.
"""

from __future__ import annotations

import argparse

import numpy as np

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.offline import read_with_progress
from sysid_ros.cli.options import recording_options
from sysid_ros.cli.terminal import show, working
from sysid_ros.core.model.loader import load_robot
from sysid_ros.reports.recordings.readers import Recording
from sysid_ros.reports.recordings.tables import write_npz


def summarize(recording: Recording) -> str:
    """Return the contents of a recording, a line each."""
    samples = recording.samples
    steps = 1e-9 * np.diff(samples.stamps)
    speeds = np.abs(samples.v).max(axis=0)
    lines = [
        f"{len(samples)} samples in {samples.seconds[-1]:.4g} s, usually every {1e3 * np.median(steps):.4g} ms",
        "largest speed of each joint [rad/s]: " + ", ".join(f"{speed:.3g}" for speed in speeds),
        *(f"note: {sentence}" for sentence in recording.notices),
        *(f"not guaranteed: {sentence}" for sentence in recording.caveats),
    ]
    return "\n".join(lines)


def run(options: argparse.Namespace) -> int:
    """Read, tell and write; return the exit status."""
    robot = load_robot(options.model)
    output = options.output or options.file.with_suffix(".npz")
    recording, was_stopped = read_with_progress(options.file, robot, recording_options(options))
    show(summarize(recording))
    with working(f"writing {output}"):
        write_npz(output, robot, recording)
    show(f"Table: {output}")
    return ExitStatus.STOPPED if was_stopped else ExitStatus.OK
