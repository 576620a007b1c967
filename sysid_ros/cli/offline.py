"""Commands on recordings: ``sysid offline`` identifies, ``sysid report`` writes again, ``sysid import`` makes a table.

``sysid offline`` identifies a payload; with ``--body`` another body, or combinations of the parameters of all. It gives
the same numbers as online: the same estimator is fed with the same portions of samples in the same order. Several
recordings of one arm are independent runs, each with a folder of its own; runs in ``runs.jsonl`` are not repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.options import parse_settings, read_settings, recording_options
from sysid_ros.cli.parse_recordings import locate
from sysid_ros.cli.terminal import (
    ProgressDisplay,
    body_summary,
    files_summary,
    hanging,
    make_table,
    mass_detail,
    next_step,
    result_summary,
    show,
    watching,
    working,
)
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.core.estimation.parameters.estimate import EstimateStatus, ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import PAYLOAD, EstimatorSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.robot_files import find_settings
from sysid_ros.library.identify import identify_bodies, identify_recording
from sysid_ros.reports.estimate_yaml import body_text
from sysid_ros.reports.folders import TARE, make_results_directory
from sysid_ros.reports.recordings.files import read_recording, weighed
from sysid_ros.reports.recordings.options import InvalidRecording, ReadOptions
from sysid_ros.reports.recordings.readers import Recording, with_velocity_error
from sysid_ros.reports.recordings.recording import RECORDING
from sysid_ros.reports.recordings.tables import write_npz
from sysid_ros.reports.result import IdentificationResult, MotionRecord, followed_motions
from sysid_ros.reports.writer import write_results
from sysid_ros.view.address import free_port

if TYPE_CHECKING:
    from sysid_ros.view.replay import Replay


def load_known(options: argparse.Namespace, calibration: str | None = None) -> RobotModel:
    """Load the arm, as well known as it is said to be.

    Args:
        options: With ``model`` and ``known_within``.
        calibration: As for :func:`load_robot`.
    """
    return load_robot(options.model, calibration=calibration, known_within=options.known_within)


def run(options: argparse.Namespace) -> int:
    """Read, identify, print and write; return the exit status."""
    if len(options.files) > 1:
        return _run_fleet(options)
    settings = read_settings(options)
    robot = _robot_of(options)
    recording, was_cut = read_with_progress(options.files[0], robot, recording_options(options))
    if was_cut:
        show("What was read is identified; Ctrl-C ends that, too.", stream=sys.stderr)
    if settings.body != PAYLOAD:
        status = _run_bodies(options, robot, settings, recording)
        return ExitStatus.STOPPED if was_cut else status
    tare = _read_tare(options, robot)
    robot = _weighed_at_the_wrist(options, options.files[0], robot, recording, tare)
    result, was_stopped = identify_with_progress(recording, robot, settings, tare)
    was_stopped = was_stopped or was_cut
    status = show_and_write(result, options.output, was_stopped)
    if options.view_port != "0" and not was_stopped:
        show_replay(result, options)
    return status


def read_with_progress(path: Path | str, robot: RobotModel, options: ReadOptions) -> tuple[Recording, bool]:
    """Read a recording, show a person at a terminal how far it is, and end with the samples so far on Ctrl-C.

    Returns:
        The recording, and whether it was stopped on the way.
    """
    with Interrupts(patience=1) as interrupts, watching(f"reading {path}", lambda: not interrupts.is_set) as watch:
        return read_recording(path, robot, options, watch), interrupts.is_set


def identify_with_progress(
    recording: Recording, robot: RobotModel, settings: EstimatorSettings, tare: Recording | None = None
) -> tuple[IdentificationResult, bool]:
    """Identify a payload, show how far it is, and end with the estimate so far on Ctrl-C.

    Returns:
        The result, and whether it was stopped on the way.
    """
    box, seconds = robot.payload_prior.box, float(recording.samples.seconds[-1])
    prior = float(box.lower[0]), float(box.upper[0])

    with ProgressDisplay() as display, Interrupts(patience=1) as interrupts:

        def tell(done: float, estimate: ParameterEstimate) -> None:
            mass = (estimate.lower[0], estimate.values[0], estimate.upper[0]) if estimate.is_consistent else None
            text = f"{done:6.1f} s of {seconds:.1f} s of data"
            display.update(text, done / seconds if seconds else None, mass_detail(mass, prior))

        result = identify_recording(
            recording, robot, settings, tell, lambda: interrupts.is_set, lambda text: display.update(text), tare
        )
        return result, interrupts.is_set


def show_and_write(result: IdentificationResult, output: str, was_stopped: bool = False) -> int:
    """Print the result, write its files into a new folder below ``output`` if that is one; return the exit status."""
    show("", result_summary(result))
    if output:
        with working("writing the files"):
            written = write_results(result, make_results_directory(output))
        show(files_summary(result, written))
    else:
        show(hanging("Next: ", next_step(result)))
    if was_stopped:
        return ExitStatus.STOPPED
    if result.is_identified:
        return ExitStatus.OK
    return ExitStatus.NOT_IDENTIFIED if result.estimate.is_consistent else ExitStatus.FAILED


def show_replay(result: IdentificationResult, options: argparse.Namespace) -> None:
    """Show the recording in a browser until Ctrl-C."""
    replay = open_replay(result, Path(options.files[0]), options.model, options.view_port)
    print(f"The recording is shown at {replay.view.url}; Ctrl-C ends it.", flush=True)
    try:
        replay.run()
    except KeyboardInterrupt:
        print()
    finally:
        replay.view.close()


def open_replay(result: IdentificationResult, file: Path, model: str, port: str) -> Replay:
    """Show a result over time in a browser.

    Args:
        result: Of a recording, with its samples.
        file: The recording; its plans are shown, too, where it has some.
        model: The arm as it was named, beside whose settings meshes are looked for.
        port: Of ``--view``.
    """
    from sysid_ros.core.collision.scene import Scene  # neither a view nor proofs of plans are always asked for
    from sysid_ros.reports.recordings.runs import RecordedRun, read_run
    from sysid_ros.view.replay import FollowedPlan, Replay, Story
    from sysid_ros.view.scene import ArmView

    samples, history = result.samples, result.history
    if samples is None or len(samples) == 0:
        raise SysidError("--view: there are no samples to replay")
    try:
        recorded = read_run(file) if file.suffix == ".mcap" and file.is_file() else RecordedRun()
    except SysidError:  # a plan of another version: the replay goes without
        recorded = RecordedRun()
    plans = []
    for one in _followed(recorded.motions(int(samples.stamps[0])), result):
        end = one.start + (one.trajectory.duration if one.followed is None else one.followed)
        plans.append(FollowedPlan(one.trajectory, one.start if one.issued is None else one.issued, one.start, end))
    # The history may end with the same estimate twice: at the last update, and at the end
    story = Story(
        seconds=samples.seconds,
        q=samples.q,
        update_times=history.time,
        bounds=np.stack([history.lower, history.values, history.upper], axis=1),
        final=result.estimate,
        plans=plans,
        scene=recorded.plans[-1].scene if recorded.plans else Scene(),
    )
    view = ArmView(result.robot, free_port(port), find_settings(model).parent)
    return Replay(view, result.robot, story)


def _followed(motions: tuple[MotionRecord, ...], result: IdentificationResult) -> tuple[MotionRecord, ...]:
    """Return motions with how long each was followed, where the recording has desired positions."""
    if result.samples is None or result.reference_q is None:
        return motions
    return followed_motions(motions, result.samples.seconds, result.reference_q)


def _robot_of(options: argparse.Namespace) -> RobotModel:
    robot = load_known(options, options.calibration)
    robot = dataclasses.replace(robot, payload_prior=robot.prior(options.prior))
    return weighed(robot, options.mass)


def _read_tare(options: argparse.Namespace, robot: RobotModel) -> Recording | None:
    return None if options.tare_file is None else read_recording(options.tare_file, robot, recording_options(options))


def _weighed_at_the_wrist(
    options: argparse.Namespace, file: str, robot: RobotModel, recording: Recording, tare: Recording | None
) -> RobotModel:
    """Return the arm with a payload prior that a wrist sensor has narrowed; itself where none is named."""
    if options.wrench is None:
        return robot
    from sysid_ros.core.estimation.wrist import WristSensor, bound_by_wrench, with_wrench  # seldom asked for
    from sysid_ros.reports.payload import tool_parameters
    from sysid_ros.reports.recordings.bags import read_wrenches

    wrenches, frame = read_wrenches(Path(file), options.wrench)
    sensor = WristSensor(options.wrench_frame or frame, *options.wrench_error)
    tool = float(tool_parameters(robot)[0])
    if tare is None and tool > 0.0:
        allowed = f"a recording with the empty hand: the tool of {tool:.2f} kg is behind the sensor, too"
        raise ParameterOutOfRange("--tare", "none", allowed)
    empty, known = None, with_velocity_error(robot, recording)
    if tare is not None:
        of_tare, tared = read_wrenches(Path(options.tare_file), options.wrench)
        if tared != frame:
            allowed = f"wrenches in the frame of the other recording, {frame!r}"
            raise InvalidRecording(options.tare_file, f"the frame of {options.wrench}", repr(tared), allowed)
        empty, known = (tare.batches, of_tare), with_velocity_error(known, tare)
    box = bound_by_wrench(known, sensor, read_settings(options), (recording.batches, wrenches), empty)
    return with_wrench(robot, box)


def _run_fleet(options: argparse.Namespace) -> int:
    _robot_of(options)  # a mistake for all of them is reported once
    jobs = fleet_jobs(options)
    path = Path(options.output) / "runs.jsonl"
    from sysid_ros.cli.many_runs import carry_out_runs

    entries, failures = carry_out_runs(identify_file, jobs, path, (options.workers, options.scheduler))
    results = [(entry["job"]["folder"], entry["result"]) for entry in entries]
    show(fleet_table(results))
    show(*(hanging(f"{name}: ALARM: ", one["alarm"]) for name, one in results if not one["is_consistent"]))
    show(f"Files: {path.parent.absolute()}")
    found = [entry["result"] for entry in entries]
    if failures or not all(one["is_consistent"] for one in found):
        return ExitStatus.FAILED
    return ExitStatus.OK if all(one["is_identified"] for one in found) else ExitStatus.NOT_IDENTIFIED


def fleet_jobs(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the job of each recording: options, file with its size and age, and the folder of its results.

    Raises:
        ParameterOutOfRange: A file does not exist.
    """
    shared = {name: value for name, value in vars(options).items() if name not in ("files", "workers", "scheduler")}
    shared["output"] = str(Path(options.output).absolute())  # workers may stand in another folder
    jobs = []
    for file in dict.fromkeys(str(Path(one).absolute()) for one in options.files):
        path = Path(file)
        if not path.exists():
            raise ParameterOutOfRange("file", file, "a recording that exists")
        twins = [one for one in options.files if Path(one).stem == path.stem]
        folder = path.stem if len(twins) == 1 else f"{path.stem}-{zlib.crc32(file.encode()):08x}"
        about = path.stat()
        jobs.append(shared | {"file": file, "size": about.st_size, "mtime_ns": about.st_mtime_ns, "folder": folder})
    return jobs


def identify_file(**job: Any) -> dict[str, Any]:
    """Identify from one of several recordings and write its files; the run of an executor.

    Args:
        job: See :func:`fleet_jobs`.

    Returns:
        Mass and CoM with bounds, and whether they were identified.
    """
    options = argparse.Namespace(**job)
    robot = _robot_of(options)
    recording = read_recording(job["file"], robot, recording_options(options))
    tare = _read_tare(options, robot)
    robot = _weighed_at_the_wrist(options, job["file"], robot, recording, tare)
    result = identify_recording(recording, robot, read_settings(options), tare=tare)
    folder = Path(job["output"]) / job["folder"]
    folder.mkdir(parents=True, exist_ok=True)
    written = write_results(result, folder)
    estimate = result.estimate
    known: dict[str, Any] = {"is_consistent": estimate.is_consistent, "is_identified": result.is_identified}
    known |= {"alarm": estimate.alarm_text, "windows": estimate.number_of_windows, "files": list(written.files)}
    if estimate.is_consistent:
        known |= {name: getattr(estimate, name).tolist() for name in ("values", "lower", "upper")}
    return known


def fleet_table(results: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return a table with the mass in each recording."""
    rows = []
    for name, one in results:
        if one["is_consistent"]:
            mass = [f"{one[part][0]:.4f}" for part in ("values", "lower", "upper")]
            rows.append((name, *mass, one["windows"], "yes" if one["is_identified"] else "no"))
        else:
            rows.append((name, "ALARM", "", "", one["windows"], "no"))
    return make_table(("recording", "mass [kg]", "lower", "upper", "windows", "identified"), rows)


def _run_bodies(
    options: argparse.Namespace, robot: RobotModel, settings: EstimatorSettings, recording: Recording
) -> int:
    seconds = float(recording.samples.seconds[-1])
    with ProgressDisplay() as display:

        def tell(done: float, _: ParameterEstimate) -> None:
            display.update(f"{done:6.1f} s of {seconds:.1f} s of data", done / seconds if seconds else None)

        target, estimate, notices = identify_bodies(recording, robot, settings, tell)
    show(body_summary(target, estimate))
    warnings = [text for text in [*notices, *recording.caveats] if text != estimate.alarm_text]
    show(*(hanging("warning: ", sentence) for sentence in warnings))
    if options.output:
        path = make_results_directory(options.output) / "bodies.yaml"
        known = dataclasses.asdict(settings)
        path.write_text(body_text(target, estimate, robot.name, recording.source, warnings, known), encoding="utf-8")
        show(f"Files: {path}")
    if not estimate.is_consistent:
        return ExitStatus.FAILED
    has_bounds = estimate.status in (EstimateStatus.PARTIAL, EstimateStatus.IDENTIFIED)
    return ExitStatus.OK if has_bounds else ExitStatus.NOT_IDENTIFIED


def run_report(options: argparse.Namespace) -> int:
    """Make report and payload files again from a recording; return the exit status."""
    from sysid_ros.reports.recordings.runs import RecordedRun, read_run  # proofs of plans take long to load

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
    motions = _followed(about.motions(int(recording.batches[0].stamps[0])), result)
    truth = about.truth if result.estimate.target == "payload" else None
    return show_and_write(
        dataclasses.replace(result, motions=motions, truth=truth), options.output, was_stopped or was_cut
    )


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


def run_import(options: argparse.Namespace) -> int:
    """Turn a recording into a table; return the exit status."""
    robot = load_robot(options.model)
    output = options.output or options.file.with_suffix(".npz")
    recording, was_stopped = read_with_progress(options.file, robot, recording_options(options))
    show(summarize(recording))
    with working(f"writing {output}"):
        write_npz(output, robot, recording)
    show(f"Table: {output}")
    return ExitStatus.STOPPED if was_stopped else ExitStatus.OK
