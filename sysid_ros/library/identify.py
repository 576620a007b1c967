"""The package in a few calls, as ``import sysid_ros`` offers it, and the estimator run over a recording, as online.

Nothing of ROS or MuJoCo is needed. Everything else is in :mod:`sysid_ros.core` and :mod:`sysid_ros.reports`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

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
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import AS_CALIBRATED, RobotModel
from sysid_ros.reports.recordings.files import SERIAL, read_recording
from sysid_ros.reports.recordings.options import InvalidRecording, ReadOptions
from sysid_ros.reports.recordings.readers import Recording, cut_repeats, with_velocity_error
from sysid_ros.reports.recordings.recording import GRIPPER
from sysid_ros.reports.recordings.sense import RawSamples, make_recording
from sysid_ros.reports.recordings.tables import stamps_of
from sysid_ros.reports.result import EstimateHistory, IdentificationResult, check_windows, collect_rows, explain_alarm
from sysid_ros.reports.torque_fit import with_torque_fit
from sysid_ros.reports.writer import software_versions

ARRAYS = ("t", "q", "v", "tau")
"""Arrays of samples: times (N,) [s], or int64 [ns]; positions [rad], velocities [rad/s], torques in joint direction
[Nm], each (N, n). Velocities may be left out."""


def identify(
    data: str | Path | Recording | Mapping[str, ArrayLike],
    robot: str | Path | RobotModel,
    settings: EstimatorSettings | None = None,
    options: ReadOptions | None = None,
    on_progress: Callable[[float, ParameterEstimate], None] = lambda seconds, estimate: None,
    tare: str | Path | Recording | Mapping[str, ArrayLike] | None = None,
) -> IdentificationResult:
    """Identify what an arm holds from recorded samples.

    Args:
        data: A bag or table, a recording that was read, or arrays: see :data:`ARRAYS`.
        robot: The arm: a name, a settings file, a URDF, or what :func:`load_robot` returned.
        settings: Settings of the estimator.
        options: What a file leaves open: topics, names, units, sign.
        on_progress: Called with the time of the data [s] and the estimate, at every renewal of the bounds.
        tare: The same arm with its hand empty, a little before; None without.

    Returns:
        The result: ``estimate`` with values and bounds, ``is_usable``, ``explanation`` of an alarm. Write it with
        :func:`sysid_ros.write_results`.

    Raises:
        SysidError: Arm, data or settings cannot be used; the message says what to do.
    """
    model = robot if isinstance(robot, RobotModel) else load_robot(robot)

    def read(what: str | Path | Recording | Mapping[str, ArrayLike]) -> Recording:
        if isinstance(what, Mapping):
            return recording_from_arrays(what, model, options)
        return what if isinstance(what, Recording) else read_recording(Path(what), model, options or ReadOptions())

    empty = None if tare is None else read(tare)
    return identify_recording(read(data), model, settings or EstimatorSettings(), on_progress, tare=empty)


def recording_from_arrays(
    arrays: Mapping[str, ArrayLike], robot: RobotModel, options: ReadOptions | None = None
) -> Recording:
    """Make a recording of arrays in the robot's joint order; see :data:`ARRAYS`.

    Of the options, only statements on the efforts count.

    Raises:
        InvalidRecording: One is missing, has another shape, or numbers that this arm cannot have.
    """
    source = Path("arrays")
    for name in arrays:
        if name not in ARRAYS:
            raise InvalidRecording(source, f"the array '{name}'", "unknown", "t, q, tau and optionally v")
    for name in ("t", "q", "tau"):
        if name not in arrays:
            raise InvalidRecording(source, f"the array '{name}'", "missing", "t [s], q [rad], tau [Nm], optionally v")
    found = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in found.items():
        expected = (found["t"].size,) if name == "t" else (found["t"].size, robot.n)
        if array.shape != expected:
            raise InvalidRecording(source, f"the shape of '{name}'", array.shape, f"{expected} (samples, joints)")
    is_ns = np.issubdtype(found["t"].dtype, np.integer)
    stamps = stamps_of(source, found["t"], 1e-9 if is_ns else 1.0)
    kept, notices = cut_repeats(source, stamps)
    v = np.asarray(found["v"], dtype=float)[kept] if "v" in found else None
    q, tau = (np.asarray(found[name], dtype=float)[kept] for name in ("q", "tau"))
    stated = options or ReadOptions()
    stated = replace(stated, effort_sign=stated.effort_sign or 1.0)  # arrays are in joint direction
    recording = make_recording(source, robot, RawSamples(stamps[kept], q, v, tau, tuple(notices)), stated)
    return replace(recording, source="arrays")


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
    known_hand = None
    if tare is not None:
        _compare_arms(robot, tare)
        own = _with_gripper(replace(settings, gripper=""), robot, tare)
        known_hand = make_tare(with_velocity_error(robot, tare), tare.batches, own)
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
    agreement = measure_agreement(robot, unknowns, [*known, *rows], found)
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
        settings=asdict(settings),
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
    return replace(settings, gripper=state)


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
