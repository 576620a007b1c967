"""Identifies a payload from a recording: ``python -m sysid_ros.offline FILE --model kinova_gen3_2f85``.

The same estimator as online, fed with the same portions of samples in the same order, so it gives the same numbers.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from sysid_ros.core.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.estimate import ParameterEstimate
from sysid_ros.core.estimation.samples import SampleBlock
from sysid_ros.core.estimation.settings import METHODS, TARGETS, EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.model.loader import available_robots, load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.export.readers import Recording, read_recording
from sysid_ros.export.result import EstimateHistory, IdentificationResult
from sysid_ros.export.torque_fit import with_torque_fit
from sysid_ros.export.versions import software_versions
from sysid_ros.export.writer import make_results_directory, write_results
from sysid_ros.terminal import ProgressDisplay, result_table

HISTORY_PERIOD = 0.2
"""Time between two entries of the history [s of data]."""
PORTION = 100
"""Samples handed to the estimator at once where a file has no portions of its own."""
EXIT_OK, EXIT_ALARM, EXIT_BAD_INPUT = 0, 1, 2


def identify_recording(
    recording: Recording,
    robot: RobotModel,
    settings: EstimatorSettings,
    on_progress: Callable[[float, ParameterEstimate], None] = lambda seconds, estimate: None,
) -> IdentificationResult:
    """Runs the streaming estimator over a recording.

    Args:
        recording: The samples.
        robot: The arm that was recorded.
        settings: Settings of the estimator.
        on_progress: Called with the time of the data [s] and the estimate, every :data:`HISTORY_PERIOD`.

    Returns:
        Everything about the identification; where the data contradict the assumptions, with the alarm.

    Raises:
        SysidError: The samples or settings do not fit the robot.
    """
    started = time.perf_counter()
    robot, notices = _with_velocity_error(robot, recording)
    estimator = StreamingEstimator(robot, settings)
    start = recording.batches[0].stamps[0]
    times: list[float] = []
    estimates: list[ParameterEstimate] = []
    epoch, due = recording.payload_epochs[0], HISTORY_PERIOD
    for batch, payload_epoch in zip(recording.batches, recording.payload_epochs, strict=True):
        if payload_epoch != epoch:
            epoch = payload_epoch
            estimator.reset("the payload was announced to have changed")
            notices.append(f"the payload changed {1e-9 * (batch.stamps[0] - start):.2f} s after the start; "
                           "the estimate is of the last one")  # fmt: skip
        for portion in _portions(batch):
            notices += estimator.add(portion)
            seconds = 1e-9 * float(portion.stamps[-1] - start)
            if seconds >= due:
                due = seconds + HISTORY_PERIOD
                times.append(seconds)
                estimates.append(estimator.estimate())
                on_progress(seconds, estimates[-1])
    estimate = estimator.estimate()
    times.append(1e-9 * float(recording.batches[-1].stamps[-1] - start))
    estimates.append(estimate)
    result = IdentificationResult(
        robot=robot,
        estimate=estimate,
        history=EstimateHistory.from_estimates(times, estimates),
        samples=recording.samples,
        reference_q=recording.reference_q,
        reference_v=recording.reference_v,
        commanded_tau=recording.commanded_tau,
        information=estimator.information(),
        timing={"estimation": time.perf_counter() - started},
        settings=dataclasses.asdict(settings),
        versions=software_versions(),
        warnings=tuple(dict.fromkeys([*recording.notices, *notices])),
        source=recording.source,
    )
    return with_torque_fit(result)


def _with_velocity_error(robot: RobotModel, recording: Recording) -> tuple[RobotModel, list[str]]:
    """The robot with an error of the velocity that covers computed velocities."""
    if recording.velocity_error is None:
        return robot, []
    error = np.maximum(robot.sensors.velocity_error, recording.velocity_error)
    return dataclasses.replace(robot, sensors=dataclasses.replace(robot.sensors, velocity_error=error)), []


def _portions(batch: SampleBlock) -> list[SampleBlock]:
    if len(batch) <= 2 * PORTION:
        return [batch]
    return [batch.slice(first, first + PORTION) for first in range(0, len(batch), PORTION)]


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    defaults = EstimatorSettings()
    parser = argparse.ArgumentParser(
        prog="sysid_offline", description="Identifies a payload from a recording (.mcap of this suite, .csv or .npz)."
    )
    parser.add_argument("file", help="the recording; forms are described in docs/outputs.md")
    parser.add_argument(
        "--model", required=True, help=f"the arm: one of {', '.join(available_robots())}, or a settings file"
    )
    parser.add_argument("--method", default=defaults.method, choices=METHODS, help="how bounds are computed")
    parser.add_argument("--target", default=defaults.target, choices=TARGETS, help="what is identified")
    parser.add_argument(
        "--window", type=float, default=defaults.window_duration, help="length of a momentum window [s]"
    )
    parser.add_argument("--prior", default=None, help="name of the payload prior; default: the arm's own")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other setting of the estimator, for instance torque_lag=0.02 or gravity_cone=0.035; repeatable",
    )
    parser.add_argument("--topic", default=None, help="topic of the sample batches, where a recording has several")
    parser.add_argument("--output", default="results", help="folder for a new folder with the files; '' writes none")
    return parser


def read_settings(options: argparse.Namespace) -> EstimatorSettings:
    """Settings of the estimator from the command line.

    Raises:
        ParameterOutOfRange: A setting is unknown, has the wrong type or is out of range.
    """
    defaults = EstimatorSettings()
    known = {entry.name: getattr(defaults, entry.name) for entry in dataclasses.fields(EstimatorSettings)}
    values: dict[str, object] = {
        "method": options.method,
        "target": options.target,
        "window_duration": options.window,
    }
    for word in options.set:
        name, separator, text = word.partition("=")
        if not separator or name not in known:
            raise ParameterOutOfRange("--set", word, "NAME=VALUE with a name of " + ", ".join(known))
        values[name] = _parse(name, text, known[name])
    return EstimatorSettings(**values)  # type: ignore[arg-type]


def _parse(name: str, text: str, default: object) -> object:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, tuple):
            return tuple(word for word in text.split(",") if word)
        return type(default)(text)
    except (ValueError, KeyError):
        kinds = {bool: "true or false", int: "a whole number", float: "a number"}
        raise ParameterOutOfRange(name, text, kinds.get(type(default), "text")) from None


def run(options: argparse.Namespace) -> int:
    """Reads, identifies, prints and writes; returns the exit status.

    Raises:
        SysidError: The input cannot be used.
    """
    settings = read_settings(options)
    robot = load_robot(options.model)
    robot = dataclasses.replace(robot, payload_prior=robot.prior(options.prior))
    recording = read_recording(options.file, robot, options.topic)
    prior = robot.payload_prior.box
    display = ProgressDisplay(prior_mass=(float(prior.lower[0]), float(prior.upper[0])))

    def show(seconds: float, estimate: ParameterEstimate) -> None:
        mass = (estimate.lower[0], estimate.values[0], estimate.upper[0]) if estimate.is_consistent else None
        display.update(f"{seconds:6.2f} s of data", mass=mass)

    result = identify_recording(recording, robot, settings, show)
    display.finish()
    print("\n" + result_table(result))
    if options.output:
        written = write_results(result, make_results_directory(options.output))
        for sentence in written.left_out:
            print(f"note: {sentence}")
        print(f"Files: {written.directory}")
    return EXIT_OK if result.is_usable else EXIT_ALARM


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0 identified, 1 alarm, 2 the input cannot be used, 130 Ctrl-C."""
    try:
        return run(build_parser().parse_args(argv))
    except SysidError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
