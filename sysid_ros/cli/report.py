"""Makes report and payload files again: ``sysid report FOLDER`` from the recording of a run, or from any recording."""

from __future__ import annotations

import argparse
import dataclasses

from sysid_ros.cli.offline import identify_with_progress, read_with_progress, show_and_write
from sysid_ros.cli.options import parse_settings, recording_options
from sysid_ros.cli.parse_recordings import locate
from sysid_ros.core.model.loader import load_robot
from sysid_ros.reports.folders import TARE
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.options import InvalidRecording
from sysid_ros.reports.recordings.recording import RECORDING
from sysid_ros.reports.recordings.runs import RecordedRun, read_run
from sysid_ros.reports.result import followed_motions


def run(options: argparse.Namespace) -> int:
    """Read, identify and write; return the exit status."""
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
    beside = recording_path.parent / TARE / RECORDING
    tare = read_recording(beside, robot) if beside.is_file() else None
    result, was_stopped = identify_with_progress(recording, robot, parse_settings(options.set), tare)
    start_ns = int(recording.batches[0].stamps[0])
    motions = about.motions(start_ns)
    if recording.reference_q is not None:
        motions = followed_motions(motions, recording.samples.seconds, recording.reference_q)
    truth = about.truth if result.estimate.target == "payload" else None
    return show_and_write(
        dataclasses.replace(result, motions=motions, truth=truth), options.output, was_stopped or was_cut
    )
