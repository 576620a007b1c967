"""Runs the streaming estimator over a recording: the same numbers as online, for the command line and as a library."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.bounds.agreement import measure_agreement
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import PAYLOAD, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Target, describe_unknowns
from sysid_ros.core.estimation.point.statistics import compute_statistical_interval
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.tare import Tare, known_rows, make_tare
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibrated import describe_unknown_arm, require_same_arm
from sysid_ros.core.model.robot import AS_CALIBRATED, RobotModel
from sysid_ros.reports.recordings.files import SERIAL
from sysid_ros.reports.recordings.readers import Recording, with_velocity_error
from sysid_ros.reports.recordings.recording import GRIPPER
from sysid_ros.reports.result import EstimateHistory, IdentificationResult, check_windows, collect_rows, explain_alarm
from sysid_ros.reports.torque_fit import with_torque_fit
from sysid_ros.reports.writer import software_versions

PORTION = 0.05
"""Length of a portion for the estimator where a file has no portions of its own [s]."""


def identify_recording(
    recording: Recording,
    robot: RobotModel,
    settings: EstimatorSettings,
    on_progress: Callable[[float, ParameterEstimate], None] = lambda seconds, estimate: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_phase: Callable[[str], None] = lambda text: None,
    tare: Recording | None = None,
) -> IdentificationResult:
    """Run the streaming estimator over a recording.

    Args:
        recording: The samples.
        robot: The arm that was recorded.
        settings: Settings of the estimator; where they do not say how the gripper was, the recording may.
        on_progress: Called with the time of the data [s] and the estimate, at every renewal of the bounds.
        is_cancelled: Polled between portions and in the checks after them; ends the run with the result of the samples
            so far, and with warnings of checks that are missing.
        on_phase: Called with each step after the estimate, in a few words.
        tare: A recording of the same arm with the empty hand, of the same session of its driver.

    Returns:
        Everything about the identification; where the data contradict the assumptions, with the alarm.

    Raises:
        SysidError: The samples or settings do not fit the robot, or the other recording is no tare.
    """
    if settings.body != PAYLOAD:
        raise ParameterOutOfRange("body", settings.body, f"{PAYLOAD}; other bodies are for identify_bodies")
    started = time.perf_counter()
    unknown_arm = _compare_arms(robot, recording)
    settings = _with_gripper(settings, robot, recording)
    robot = with_velocity_error(robot, recording)
    known_hand = None if tare is None else _make_tare(tare, robot, settings)
    robot = robot.with_gripper(settings.gripper)
    run = _Run(robot, settings, recording.batches[0].stamps[0], on_progress, is_cancelled, known_hand)
    notices = [*unknown_arm, *run.process(recording)]
    if run.count < len(recording.samples):
        whole, recording = recording.samples.seconds[-1], recording.cut(run.count)
        notices.append(f"stopped on request: {run.seconds:.1f} s of {whole:.1f} s of data were used")
    estimate = run.estimator.estimate()
    run.history.append((run.seconds, estimate))
    said = {estimate.alarm_text, estimate.payload_change}
    is_usable = estimate.is_consistent and bool(np.all(np.isfinite(estimate.values)))
    on_phase("checking every window")
    # An alarm ends the estimator's work, but the windows after it show the fault best
    rows = run.rows if is_usable else collect_rows(robot, settings, recording.batches, is_cancelled)
    times, estimates = zip(*run.history, strict=True)
    spent = time.perf_counter() - started
    windows = check_windows(robot, settings, rows, estimate.values if is_usable else None, run.start_ns)
    on_phase("computing the statistical interval" if is_usable else "looking for what could be wrong")
    latest = [b for b, e in zip(recording.batches, recording.payload_epochs, strict=True) if e == run.epoch]
    unknowns = describe_unknowns(robot, settings)
    found = Box(estimate.lower, estimate.upper) if is_usable and estimate.is_guaranteed else None
    known = known_rows(robot, unknowns, settings, rows, known_hand)
    agreement = measure_agreement(unknowns, [*known, *rows], found)
    if agreement is not None and agreement.doubt:
        said.add(estimate.doubt)  # the same, of the first seconds
    statistical = None
    if is_usable and not is_cancelled():
        statistical = compute_statistical_interval(robot, settings, run.rows, estimate.box, known)
    explanation = explain_alarm(robot, settings, estimate, latest, is_cancelled)
    if is_cancelled() and (statistical is None if is_usable else explanation is None):
        left_out = "no statistical interval was computed" if is_usable else "nothing was tried that could be wrong"
        notices.append(f"stopped on request: {left_out}")
    result = IdentificationResult(
        robot=robot,
        estimate=estimate,
        history=EstimateHistory.from_estimates(times, estimates),
        samples=recording.samples,
        reference_q=recording.reference_q,
        reference_v=recording.reference_v,
        commanded_tau=recording.commanded_tau,
        windows=windows,
        statistical=statistical,
        agreement=agreement,
        explanation=explanation,
        information=run.estimator.information(),
        timing={"estimation": spent},
        settings=dataclasses.asdict(settings),
        versions=software_versions(),
        warnings=tuple(text for text in _latest([*recording.notices, *notices]) if text not in said),
        caveats=recording.caveats,
        source=recording.source,
    )
    on_phase("predicting torques")
    return with_torque_fit(result)


def identify_bodies(
    recording: Recording,
    robot: RobotModel,
    settings: EstimatorSettings,
    on_progress: Callable[[float, ParameterEstimate], None] = lambda seconds, estimate: None,
) -> tuple[Target, ParameterEstimate, list[str]]:
    """Run the streaming estimator over a recording for another body than the payload, or for all of them.

    Args:
        recording: The samples.
        robot: The arm that was recorded.
        settings: Settings of the estimator.
        on_progress: Called with the time of the data [s] and the estimate, at every renewal of the bounds.

    Returns:
        The result, the estimate, and all notices.

    Raises:
        SysidError: The samples or settings do not fit the robot.
    """
    unknown_arm = _compare_arms(robot, recording)
    settings = _with_gripper(settings, robot, recording)
    run = _Run(with_velocity_error(robot, recording), settings, recording.batches[0].stamps[0], on_progress)
    notices = [*unknown_arm, *run.process(recording)]
    return run.estimator.target, run.estimator.estimate(), _latest([*recording.notices, *notices])


def _compare_arms(robot: RobotModel, recording: Recording) -> list[str]:
    serial = (recording.metadata or {}).get(SERIAL, "")
    require_same_arm(robot, serial, recording.source)
    return describe_unknown_arm(robot, serial)


def _with_gripper(settings: EstimatorSettings, robot: RobotModel, recording: Recording) -> EstimatorSettings:
    """Return the settings with the state of the gripper that the recording names, where they name none themselves."""
    state = (recording.metadata or {}).get(GRIPPER, "")
    # A recording does not say of which calibration it speaks.
    if settings.gripper or state not in robot.gripper_states or state == AS_CALIBRATED:
        return settings
    return dataclasses.replace(settings, gripper=state)


def _make_tare(recording: Recording, robot: RobotModel, settings: EstimatorSettings) -> Tare:
    _compare_arms(robot, recording)
    own = _with_gripper(dataclasses.replace(settings, gripper=""), robot, recording)
    return make_tare(with_velocity_error(robot, recording), recording.batches, own)


class _Run:
    """One pass of the estimator over a recording; keeps its notices."""

    def __init__(
        self,
        robot: RobotModel,
        settings: EstimatorSettings,
        start_ns: int,
        on_progress: Callable[[float, ParameterEstimate], None] = lambda seconds, estimate: None,
        is_cancelled: Callable[[], bool] = lambda: False,
        tare: Tare | None = None,
    ):
        self.start_ns = int(start_ns)
        self.seconds, self.epoch, self.count = 0.0, 0, 0
        self.history: list[tuple[float, ParameterEstimate]] = []
        self.rows: list[Rows] = []
        self._on_progress, self._is_cancelled = on_progress, is_cancelled
        self.estimator = StreamingEstimator(robot, settings, self.rows.append, self._take_update, tare)

    def process(self, recording: Recording) -> list[str]:
        """Feed everything, or what comes before the end on request, and return the notices."""
        notices: list[str] = []
        self.epoch = recording.payload_epochs[0]
        for batch, payload_epoch in zip(recording.batches, recording.payload_epochs, strict=True):
            if payload_epoch != self.epoch:
                self.epoch = payload_epoch
                self.rows.clear()
                notices.append(self.estimator.reset("the payload was announced to have changed"))
            for portion in _portions(batch):
                if self.count and self._is_cancelled():
                    return notices
                self.count += len(portion)
                self.seconds = 1e-9 * float(portion.stamps[-1] - self.start_ns)
                notices += self.estimator.add(portion)
        return notices

    def _take_update(self, estimate: ParameterEstimate) -> None:
        self.history.append((self.seconds, estimate))
        self._on_progress(self.seconds, estimate)


def _portions(batch: SampleBlock) -> list[SampleBlock]:
    if len(batch) < 2 or batch.seconds[-1] <= 2.0 * PORTION:
        return [batch]
    size = max(1, round(PORTION * (len(batch) - 1) / batch.seconds[-1]))
    return [batch.slice(first, first + size) for first in range(0, len(batch), size)]


def _latest(notices: Sequence[str]) -> list[str]:
    """Return each notice once; of a kind that counts something, the last one, which counts all of it."""
    return list({text.lstrip("0123456789 ").split(" (")[0]: text for text in notices}.values())
