"""Makes report and payload files again: ``sysid report FOLDER`` from the recording of a run, or from any recording."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from sysid_ros.cli.exit_status import ExitStatus, endings, run_command
from sysid_ros.cli.offline import (
    add_recording_options,
    identify_with_progress,
    parse_settings,
    read_with_progress,
    recording_options,
    show_and_write,
)
from sysid_ros.core.common.command_line import CommandParser
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.model.loader import load_robot
from sysid_ros.reports.recordings.readers import InvalidRecording
from sysid_ros.reports.recordings.recording import RECORDING
from sysid_ros.reports.recordings.runs import RecordedRun, read_run
from sysid_ros.reports.result import followed_motions
from sysid_ros.reports.writer import ESTIMATE, require_results_root


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid report",
        description="Makes the report and the payload files again, with the software as it is now: from the recording "
        "in a results folder, or from any recording. Of a run of this suite the report also has the motions with their "
        "certificates, and what a simulated arm truly held.",
        examples=(
            "sysid report results/2026-11-23_10-00-00",
            "sysid report results/2026-11-23_10-00-00 --model my_arm.yaml",
            "sysid report my_bag/ --model ur5e --output first",
        ),
        endings=endings(ExitStatus.FAILED, ExitStatus.NOT_IDENTIFIED),
    )
    parser.add_argument("source", type=Path, metavar="FOLDER", help="results folder, or a recording")
    parser.add_argument("--model", help="the arm: a name or a settings file (default: the one that the run names)")
    parser.add_argument("--prior", default=None, help="name of the payload prior; default: the arm's own")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the estimator")
    add_recording_options(parser)
    parser.add_argument("--output", "--results", default="results", help="folder for a new folder with the files")
    return parser


def run(options: argparse.Namespace) -> int:
    """Read, identify and write; return the exit status.

    Raises:
        SysidError: The input cannot be used, or does not say which arm it is of.
    """
    recording_path, known = locate(options.source)
    about = read_run(recording_path) if recording_path.suffix == ".mcap" and recording_path.is_file() else RecordedRun()
    model = options.model or known or next((plan.robot_name for plan in about.plans), None)
    if model is None and recording_path.is_dir() and not (recording_path / "metadata.yaml").is_file():
        allowed = "a recording, or the folder of one result, with estimate.yaml"
        raise InvalidRecording(recording_path, "the folder", "without a result of its own", allowed)
    if model is None:
        raise InvalidRecording(recording_path, "the arm", "not named", "a robot: --model")
    robot = load_robot(model)
    robot = dataclasses.replace(robot, payload_prior=robot.prior(options.prior))
    if not about.fits(robot) and options.model is None:
        raise InvalidRecording(
            recording_path, "the arm", f"another than '{model}' is now", "the settings file of that run: --model"
        )
    recording, was_cut = read_with_progress(recording_path, robot, recording_options(options))
    if options.output:
        require_results_root(options.output)
    result, was_stopped = identify_with_progress(recording, robot, parse_settings(options.set))
    start_ns = int(recording.batches[0].stamps[0])
    motions = about.motions(start_ns)
    if recording.reference_q is not None:
        motions = followed_motions(motions, recording.samples.seconds, recording.reference_q)
    truth = about.truth if result.estimate.target == "payload" else None
    return show_and_write(
        dataclasses.replace(result, motions=motions, truth=truth), options.output, was_stopped or was_cut
    )


def locate(source: Path) -> tuple[Path, str | None]:
    """Return the recording of a results folder, or of what is one itself, and the name of the arm where it is known.

    Raises:
        InvalidRecording: It is missing, or a folder with results but no recording.
    """
    if not source.exists():
        raise InvalidRecording(source, "the folder or file", "missing", "a results folder, or a recording")
    if not (source / ESTIMATE).is_file():
        return (source / RECORDING, None) if (source / RECORDING).is_file() else (source, None)
    known = read_yaml(source / ESTIMATE)
    if not (source / RECORDING).is_file():
        made_from = known.get("source", "a recording")
        raise InvalidRecording(source, RECORDING, "missing", f"the recording itself ({made_from}), with --model")
    return source / RECORDING, str(known["robot"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its :class:`~sysid_ros.cli.exit_status.ExitStatus`."""
    return run_command(lambda: run(build_parser().parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
