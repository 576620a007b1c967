"""What one identification found, with everything a reader needs to judge it; the input of every written file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.bounds.agreement import Agreement
from sysid_ros.core.estimation.bounds.consistency import largest_residual
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.estimate import AlarmCode, EstimateStatus, ParameterEstimate, Quantity
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.point.statistics import StatisticalInterval
from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import SampleStream
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import Trajectory

if TYPE_CHECKING:  # proofs of plans take half a second to load, and results of recordings have none
    from sysid_ros.core.certification.certificate import MarginRow
    from sysid_ros.core.estimation.hypotheses import Explanation

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WindowCheck:
    """Mean torques of W windows beside what one payload explains of them.

    Attributes:
        times: Middle of each window since the first sample, (W,) [s].
        residual: Measured mean torque less the torque of the nominal arm and the payload, (W, n) [Nm].
        allowed: What the errors of the sensors and the uncertainty of the arm may cause of it, (W, n) [Nm].
        payload: The payload, (10,), in the form of the estimate.
        is_estimate: Whether it is the estimate; otherwise the least-squares fit to all windows, for diagnosis only.
    """

    times: Array
    residual: Array
    allowed: Array
    payload: Array
    is_estimate: bool

    def contradictions(self, names: Sequence[str]) -> list[str]:
        """Name every joint with windows whose residual nothing allowed explains, the worst first, a sentence each."""
        excess = np.abs(self.residual) - self.allowed
        order = np.argsort(-excess.max(axis=0, initial=-np.inf))
        sentences = []
        for joint in order:
            bad = np.flatnonzero(excess[:, joint] > 0.0)
            if bad.size:
                worst = bad[np.argmax(excess[bad, joint])]
                sentences.append(
                    f"{names[joint]}: {bad.size} of {len(self.times)} windows; worst at {self.times[worst]:.2f} s, "
                    f"{self.residual[worst, joint]:+.3f} Nm where {self.allowed[worst, joint]:.3f} Nm are allowed"
                )
        return sentences


def collect_rows(
    robot: RobotModel,
    settings: EstimatorSettings,
    blocks: Iterable[SampleBlock],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> list[Rows]:
    """Rows of all windows, those too at which an estimator would have raised the alarm; those so far if cancelled."""
    stream, model = SampleStream(robot, settings), WindowModel(robot, settings, describe_unknowns(robot, settings))
    rows = []
    for block in blocks:
        if is_cancelled():
            break
        for window in stream.add(block)[0]:
            rows.append(build_rows(model, window))
    return rows


def check_windows(
    robot: RobotModel, settings: EstimatorSettings, rows: Sequence[Rows], estimate: Array | None, origin_ns: int
) -> WindowCheck | None:
    """Compare the windows with a payload.

    Args:
        robot: The arm.
        settings: Those the rows were made with.
        rows: Rows of the windows.
        estimate: Point estimate, (10,); None takes the least-squares fit to all rows, for diagnosis.
        origin_ns: Stamp of the first sample [ns].

    Returns:
        The comparison, None without windows.
    """
    if not rows:
        return None
    stacked = Rows.stack(rows)
    payload = estimate
    if payload is None:  # no body need have these parameters
        weights = 1.0 / np.maximum(stacked.error, 1e-12)
        payload = np.array(np.linalg.lstsq(weights[:, None] * stacked.y, weights * stacked.u, rcond=None)[0])
    unknowns = describe_unknowns(robot, settings)
    problem = Problem.build(stacked, payload, np.zeros(10), unknowns.radius, unknowns.end_error)
    middle = 0.5e-9 * ((stacked.start - origin_ns) + (stacked.stop - origin_ns))
    return WindowCheck(
        times=np.asarray(middle.reshape(-1, robot.n)[:, 0], dtype=np.float64),
        residual=(problem.r / stacked.duration).reshape(-1, robot.n),
        allowed=(largest_residual(problem, np.zeros(10)) / stacked.duration).reshape(-1, robot.n),
        payload=payload,
        is_estimate=estimate is not None,
    )


EXPLAINED = (AlarmCode.WINDOW_INCONSISTENT, AlarmCode.JOINTLY_INCONSISTENT, AlarmCode.NO_CONSISTENT_BODY)
"""Alarms that say that no payload agrees with the data."""


def explain_alarm(
    robot: RobotModel,
    settings: EstimatorSettings,
    estimate: ParameterEstimate,
    blocks: Iterable[SampleBlock],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Explanation | None:
    """Return hypotheses about data that no payload agrees with; None where there is no such alarm."""
    if estimate.alarm is None or estimate.alarm.code not in EXPLAINED:
        return None
    from sysid_ros.core.estimation.hypotheses import explain_inconsistency  # a linear program, after an alarm alone

    return explain_inconsistency(robot, settings, blocks, is_cancelled=is_cancelled)


BLIND_SPOTS = (
    {
        "assumption": "a gripper, cable or tool is missing from the model of the arm",
        "effect": "it counts as part of the payload",
        "check": "identify with the empty hand: mass and centre of mass must come out as zero within their bounds",
    },
    {
        "assumption": "gravity is tilted by a degree or two (mount, table)",
        "effect": "the centre of mass is off, within what the box of the arm hides",
        "check": "repeat with the first joint turned by 90 degrees: the bounds of both results must meet",
    },
    {
        "assumption": "torques lag behind positions by some milliseconds",
        "effect": "inertias and friction are off",
        "check": "repeat twice as fast: the bounds of both results must meet",
    },
    {
        "assumption": "all torques have the same gain error",
        "effect": "mass and inertia are off by the same share",
        "check": "weigh the payload on a scale, or identify a known weight",
    },
    {
        "assumption": "something pulls at the payload with a constant force (a hose, a spring, a hand)",
        "effect": "the mass is off",
        "check": "weigh in two postures with the hand up and down: the bounds of both masses must meet",
    },
)
"""Assumptions that data can break without an alarm, the effect on the result, and a check that would show it."""


END_EFFECTOR = "end_effector"
"""Target of an estimate that describes the last body and the payload together."""


@dataclass(frozen=True)
class EstimateHistory:
    """The estimates of one run, in order of time.

    Attributes:
        time: Time of each update since the first sample, (K,) [s].
        values: Point estimates, (K, 10); NaN where there was none.
        lower: Lower bounds, (K, 10).
        upper: Upper bounds, (K, 10).
        condition_number: Condition number of the stacked windows, (K,) [-].
    """

    time: Array
    values: Array
    lower: Array
    upper: Array
    condition_number: Array

    @classmethod
    def from_estimates(cls, times: Sequence[float], estimates: Sequence[ParameterEstimate]) -> EstimateHistory:
        """Stacks estimates taken at times [s]."""

        def stack(name: str) -> Array:
            return np.array([getattr(estimate, name) for estimate in estimates], dtype=float).reshape(-1, 10)

        conditions = np.array([estimate.condition_number for estimate in estimates], dtype=float)
        return cls(np.asarray(times, dtype=float), stack("values"), stack("lower"), stack("upper"), conditions)


@dataclass(frozen=True)
class MotionRecord:
    """A trajectory that was executed, or a part of it was.

    Attributes:
        start: Time it started, since the first sample [s].
        trajectory: The trajectory.
        condition_number: Condition number of the excitation it promised [-].
        claims: What its certificate checked and what not, in one sentence; None where nothing is known of it.
        margins: What its certificate says is left of every limit.
        followed: How long it was followed [s]; None where that is not known.
        ending: How that ended, in words; None where that is not known.
        issued: When it was made, since the first sample [s]; None where that is not known.
    """

    start: float
    trajectory: Trajectory
    condition_number: float = float("nan")
    claims: str | None = None
    margins: tuple[MarginRow, ...] = ()
    followed: float | None = None
    ending: str | None = None
    issued: float | None = None


@dataclass(frozen=True)
class IdentificationResult:
    """Outcome of one identification.

    Attributes:
        robot: The arm, with the prior of its payload.
        estimate: The final estimate.
        history: All estimates of the run.
        samples: The samples used, None where they are not kept.
        reference_q: Desired positions, (N, n) [rad], None where unknown.
        reference_v: Desired velocities, (N, n) [rad/s], None where unknown.
        commanded_tau: Commanded torques, (N, n) [Nm], None where unknown.
        predicted_tau: Torques the estimated model predicts for the samples, (N, n) [Nm], None where not computed.
            Without a usable estimate: with the payload of ``windows``, for diagnosis.
        windows: The windows beside their explanation by the estimate, None where not computed.
        explanation: Hypotheses about data that no payload agrees with, None where some do or none were tried.
        statistical: Statistical interval from the residuals, None where there is none; it guarantees nothing.
        agreement: How much of the allowed errors the data use, None where that was not computed.
        motions: Trajectories that were accepted for execution, in order of time.
        information: Gram matrix of the windows, (10, 10), None where unknown.
        timing: How long each part took [s], by name.
        truth: True parameters of what ``estimate`` describes, in the same frame, (10,); only a simulation knows them.
        settings: Settings of the run, by name; plain numbers, texts, lists and mappings.
        versions: Versions of the software, by name.
        warnings: What a reader must know, one sentence each.
        caveats: Why the bounds of this run are not guaranteed although their method is, one sentence each.
        source: Where the samples came from.
        created: When the result was made.
    """

    robot: RobotModel
    estimate: ParameterEstimate
    history: EstimateHistory
    samples: SampleBlock | None = None
    reference_q: Array | None = None
    reference_v: Array | None = None
    commanded_tau: Array | None = None
    predicted_tau: Array | None = None
    windows: WindowCheck | None = None
    explanation: Explanation | None = None
    statistical: StatisticalInterval | None = None
    agreement: Agreement | None = None
    motions: tuple[MotionRecord, ...] = ()
    information: Array | None = None
    timing: Mapping[str, float] = field(default_factory=dict)
    truth: Array | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    source: str = "online"
    created: datetime = field(default_factory=lambda: datetime.now(timezone.utc).astimezone())

    def __post_init__(self) -> None:
        for name in ("reference_q", "reference_v", "commanded_tau", "predicted_tau", "information", "truth"):
            if (value := getattr(self, name)) is not None:
                array = np.array(value, dtype=float)
                array.setflags(write=False)
                object.__setattr__(self, name, array)

    @property
    def is_usable(self) -> bool:
        """Whether the estimate may be used: it agrees with the data, which know the mass better than the prior did."""
        return self.has_point_estimate and Quantity.MASS in self.estimate.narrower

    @property
    def has_point_estimate(self) -> bool:
        """Whether some parameters agree with all the data, and the fit to them converged."""
        return bool(self.estimate.is_consistent and np.all(np.isfinite(self.estimate.values)))

    @property
    def is_identified(self) -> bool:
        """Whether mass, CoM and inertia are all known better than before the data."""
        return self.is_usable and self.estimate.status is EstimateStatus.IDENTIFIED

    @property
    def holds_truth(self) -> NDArray[np.bool_]:
        """Whether the bounds of each parameter contain the truth, (10,); false without one."""
        truth = np.nan if self.truth is None else self.truth
        return np.asarray((self.estimate.lower <= truth) & (truth <= self.estimate.upper))

    @property
    def reason_unusable(self) -> str:
        """What the data lack or contradict, in a sentence."""
        return self.estimate.alarm_text or self.estimate.shortfall or "the fit of the parameters did not converge"

    @property
    def is_rigorous(self) -> bool:
        """Whether the bounds are guaranteed: by their method, with all error terms, and without caveats of this run."""
        return not self.caveats and self.estimate.is_guaranteed

    @cached_property
    def prior(self) -> Box:
        """The box the parameters were known to lie in before any data, (10,)."""
        return describe_unknowns(self.robot, EstimatorSettings(target=self.estimate.target)).prior

    @property
    def shrinkage(self) -> Array:
        """Width of the prior over the width of the bounds, (10,) [-]; infinite where the bounds have no width."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.prior.width / (self.estimate.upper - self.estimate.lower)


_START_ERROR, _START_STEP = 0.1, 0.001
"""Starts are known this well, and are looked for in steps of this [s]."""
_SAME = 2e-3
"""Desired positions this far apart still count as the plan's [rad]; a stamp may be half a step off."""
_BLUR = 0.25
"""A plan that takes over leaves its predecessor's path slowly: for about so long they look the same [s]."""


def followed_motions(motions: Sequence[MotionRecord], seconds: Array, reference_q: Array) -> tuple[MotionRecord, ...]:
    """Motions with their exact starts, how long each was followed, and how that ended.

    Args:
        motions: Motions in order of time.
        seconds: Times of the samples, (N,) [s].
        reference_q: Desired positions, (N, n) [rad].
    """
    matched = [_match(motion, seconds, reference_q) for motion in motions]
    motions = [
        motion if it is None else replace(motion, start=it[0]) for motion, it in zip(motions, matched, strict=True)
    ]
    until = [-np.inf if it is None else it[1] for it in matched]
    found = []
    for index, motion in enumerate(motions):
        if until[index] <= motion.start:
            found.append(replace(motion, followed=0.0, ending="not followed"))
            continue
        end = motion.start + motion.trajectory.duration
        takers = [k for k in range(index + 1, len(motions)) if until[k] > motions[k].start]
        taker = takers[0] if takers and motions[takers[0]].start < end - _BLUR else None
        if taker is not None and until[index] >= motions[taker].start - _START_ERROR:
            seconds_followed, ending = motions[taker].start - motion.start, f"plan {taker + 1} took over"
        elif until[index] >= end - _START_ERROR:
            seconds_followed, ending = motion.trajectory.duration, "to its end"
        else:
            seconds_followed, ending = until[index] - motion.start, "stopped early"
        found.append(replace(motion, followed=float(seconds_followed), ending=ending))
    return tuple(found)


def _match(motion: MotionRecord, seconds: Array, reference_q: Array) -> tuple[float, float] | None:
    """First and last time at which the desired position was the plan's [s]; None if it never was."""
    end = motion.start + motion.trajectory.duration
    inside = np.flatnonzero((seconds >= motion.start - _START_ERROR) & (seconds <= end))
    if inside.size < 2:
        return None
    times, desired = seconds[inside], reference_q[inside]
    # The start is known only so well; the samples after it show it, whatever comes later.
    first = (times > motion.start + _START_ERROR) & (times < motion.start + 2.0 * _BLUR)
    some = np.flatnonzero(first)[:: max(1, int(first.sum()) // 20)]
    if not some.size:
        return None

    def apart(offset: float, rows: NDArray[np.int64]) -> Array:
        planned = motion.trajectory.sample(times[rows] - motion.start - offset)[0]
        return np.abs(planned - desired[rows]).max(axis=1)

    # The smallest of equal ones: what stands still fits anywhere. The median, for it may stop soon.
    offsets = sorted(np.arange(-_START_ERROR, _START_ERROR + 0.5 * _START_STEP, _START_STEP), key=abs)
    misfits = [float(np.median(apart(offset, some))) for offset in offsets]
    offset = float(offsets[int(np.argmin(misfits))])
    if min(misfits) > _SAME:
        return None
    rows = np.flatnonzero(times >= motion.start + offset)
    wrong = np.flatnonzero(apart(offset, rows) > _SAME)
    last = rows[wrong[0] - 1] if wrong.size and wrong[0] > 0 else rows[-1]
    return motion.start + offset, float(times[last])
