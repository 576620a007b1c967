"""The streaming estimator: samples in, parameters with bounds out, at bounded memory and bounded time per update.

Samples become windows and rows (:class:`~.windows.stream.RowStream`); every window is checked for consistency
(:class:`ConsistencyMonitor`) before its rows enter the bounds (:class:`~.bounds.state.BoundState`); the point estimate
(:class:`~.point.fit.PointEstimator`) lies within the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.bounds.agreement import EARLY_SECONDS, measure_agreement
from sysid_ros.core.estimation.bounds.closed_form import bound_with
from sysid_ros.core.estimation.bounds.consistency import (
    JointConsistency,
    RowLabels,
    check_sensors,
    describe_inconsistency,
    find_inconsistent_rows,
    with_causes,
)
from sysid_ros.core.estimation.bounds.set_membership import add_cuts
from sysid_ros.core.estimation.bounds.state import BoundState, BoundUpdate
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.bounds import ParameterBounds, find_narrower, without_data
from sysid_ros.core.estimation.parameters.estimate import (
    NARROWER,
    Alarm,
    AlarmCode,
    ParameterEstimate,
    Quantity,
    describe_guarantee,
    is_guaranteed,
)
from sysid_ros.core.estimation.parameters.settings import PAYLOAD, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Target, Unknowns, describe_unknowns
from sysid_ros.core.estimation.point.fit import FitNotConverged, LinearEstimator, NoBodyInBox, PointEstimator
from sysid_ros.core.estimation.point.payload_change import ChangeMonitor
from sysid_ros.core.estimation.tare import LONGEST_TARE, Tare, make_tare
from sysid_ros.core.estimation.windows.model import Window
from sysid_ros.core.estimation.windows.rows import BOUNDS_ONLY, TARED, Rows, calibration_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import RowStream
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.rest_torque import RestTorque, gravity_rows

Array = NDArray[np.float64]

_SAME_POSTURE = 2e-3
"""Windows at rest within this distance of a posture weigh in it [rad]."""
_ROUNDING = 1e-12
"""Share of the size of a torque that rounding is allowed for."""
_MANY_ROWS = 200
"""A search of more rows for a feasible point takes about as long as a renewal of the bounds."""
RECENT_WINDOWS = 100
"""Windows that are kept for the check of joint consistency as they are, while the bounds use compacted ones: compacted
rows preserve the bounds, but less of what is inconsistent with a window of another payload."""


class Excitation:
    """The excitation of the windows so far.

    Attributes:
        gram: Gram matrix (P, P) of the observation matrix in terms of mean torques [Nm^2 per parameter^2].
        windows: Number of windows.
        seconds: Their duration together [s].
    """

    def __init__(self, parameters: int):
        self.gram = np.zeros((parameters, parameters))
        self.windows, self.seconds = 0, 0.0

    def add(self, rows: Rows) -> None:
        """Add the rows of a window."""
        mean = rows.y / rows.duration[:, None]
        self.gram += mean.T @ mean
        self.windows += 1
        self.seconds += float(rows.duration[0])

    def condition_number(self, chosen: NDArray[np.intp]) -> float:
        """Return the condition number of the observation matrix of some parameters; infinite if it is singular."""
        eigenvalues = np.linalg.eigvalsh(self.gram[np.ix_(chosen, chosen)])
        return float(np.sqrt(eigenvalues[-1] / eigenvalues[0])) if eigenvalues[0] > 0.0 else np.inf


class ConsistencyMonitor:
    """Checks every window against its sensors, the bounds so far and all windows before it.

    Attributes:
        recent: Rows of the latest windows, one entry each.
        searched: Rows that were searched for a feasible point with the last window; 0 where it needed no search.
    """

    def __init__(self, stream: RowStream, settings: EstimatorSettings, bounds: BoundState):
        self._stream, self._settings, self._bounds = stream, settings, bounds
        self._joint = JointConsistency()
        self.recent: list[Rows] = []
        self.searched = 0

    def check_sensors(self, window: Window) -> Alarm | None:
        """Return an alarm if positions and velocities of a window do not belong together."""
        return check_sensors(self._stream.model, window)

    def check_rows(self, rows: Rows) -> Alarm | None:
        """Return an alarm if the rows of a window are infeasible, alone or with those before; else keep them."""
        window, self.searched = self._bounds.build_problem(rows), 0
        if find_inconsistent_rows(window).size:
            return self.explain(window, rows)
        parts, cuts = [*self._bounds.compacted, *self._bounds.fixed, *self.recent, rows], self._bounds.cuts

        def build_all() -> Problem:
            self.searched = sum(len(part) for part in parts)
            problem = self._bounds.build_problem(Rows.stack(parts))
            return add_cuts(problem, cuts) if len(cuts) else problem

        proof = self._joint.check(window, rows, build_all)
        if proof is not None:
            everything = Rows.stack(parts)
            return self.explain(self._bounds.build_problem(everything), everything, proof[len(cuts) :])
        self.recent = [*self.recent, rows][-max(RECENT_WINDOWS, self._settings.max_windows) :]
        return None

    def explain(self, problem: Problem, rows: Rows, proof: Array | None = None) -> Alarm:
        """Describe an inconsistency by the joints and windows that show it most.

        ``proof`` is a combination of the rows that proves infeasibility, (R,), or None.
        """
        labels = RowLabels(rows, self._stream.model.joint_names, self._stream.origin)
        subject = "payload" if self._settings.body == PAYLOAD else "parameters"
        has_tare = any(part.window[0] == TARED for part in self._bounds.fixed)
        return with_causes(describe_inconsistency(problem, labels, proof), subject, has_tare)


class StreamingEstimator:
    """Estimates a payload, another body or all of them from samples as they arrive.

    Bounds are renewed after every ``update_windows`` windows, at first more often; with the next window where the check
    of this one takes as long, and in two parts where there are many rows. They are intersected with the earlier ones,
    so they only shrink until :meth:`reset`. The results do not depend on the size of the blocks.

    Args:
        robot: The arm with its parameter box, and the prior of the payload.
        settings: Method and assumptions.
        on_rows: Called with the rows of every window that is used.
        on_update: Called with the estimate after every renewal of the bounds.
        tare: Tare of the arm; None without one.

    Attributes:
        stream: Source of the windows.
        windows: Windows that the last block completed, uncounted ones included.

    Raises:
        ParameterOutOfRange: The settings do not fit the robot's prior, or there is no such body.
        ModelError: The arm is not a chain of revolute joints.
    """

    def __init__(
        self,
        robot: RobotModel,
        settings: EstimatorSettings | None = None,
        on_rows: Callable[[Rows], None] | None = None,
        on_update: Callable[[ParameterEstimate], None] | None = None,
        tare: Tare | None = None,
    ):
        self.settings, self.tare = settings or EstimatorSettings(), tare
        self._unknowns = describe_unknowns(robot, self.settings)
        self.stream = RowStream(robot, self.settings, self._unknowns)
        self.windows: list[Window] = []
        self._robot = robot
        self._calibration = calibration_rows(robot, self._unknowns, self.settings)
        self._on_rows, self._on_update = on_rows, on_update
        self._noted: list[SampleBlock] | None = None  # samples of a tare that has begun
        self._why_none = ""  # the reason of its end
        self._start_over()

    def _start_over(self) -> None:
        self._bounds = BoundState(self._unknowns, self.settings, self._calibration)
        self._consistency = ConsistencyMonitor(self.stream, self.settings, self._bounds)
        self._point = _make_point_estimator(self._unknowns, self.settings)
        self._excitation = Excitation(self._unknowns.nominal.size)
        self._change = ChangeMonitor(self._robot, self._unknowns) if self._unknowns.target.body else None
        self._payload_change = ""
        self._doubt, self._motion = "", 0.0
        self._rest: RestTorque | None = None
        self._alarm: Alarm | None = None
        self._latest: ParameterEstimate | None = None
        self._is_settled, self._is_late = True, False

    def reset(self, reason: str) -> str:
        """Discard all data, as after a change of payload, but for a tare; return a notice with the reason."""
        windows = self._excitation.windows
        if self._noted is not None:  # the hand may hold something now
            self._noted, self._why_none = (None, reason) if windows else ([], "")
        self.stream.clear()
        self._start_over()
        return f"estimate restarted after {windows} windows: {reason}"

    def begin_tare(self) -> None:
        """Discard the tare, and record the samples from now on as those of the empty hand."""
        self.tare, self._noted = None, []

    def forget_tare(self, reason: str) -> None:
        """Discard the tare, also one that has begun."""
        self.tare, self._noted, self._why_none = None, None, reason
        self._start_over()

    def end_tare(self) -> None:
        """Keep the tare from the samples since :meth:`begin_tare`; :meth:`reset` begins with it.

        Where it has ended already, the tare stays as it is.

        Raises:
            SysidError: The samples are no tare; there is none now.
        """
        noted, self._noted = self._noted, None
        if noted is None and self.tare is None:
            raise SysidError(f"there is no tare to end: {self._why_none or 'none was begun'}")
        if noted is not None:
            self.tare = make_tare(self._robot, noted, self.settings)

    def information(self) -> Array:
        """Return the Gram matrix (P, P) of the observation matrix in terms of mean torques [Nm^2 per parameter^2]."""
        return np.asarray(self._excitation.gram.copy())

    @property
    def target(self) -> Target:
        """The target of the identification."""
        return self._unknowns.target

    @property
    def stored_windows(self) -> list[Rows]:
        """Rows behind the bounds: of a calibration, compacted ones, then of each later window."""
        self._settle()
        return self._bounds.all_rows

    @property
    def bounds(self) -> ParameterBounds:
        """Bounds that all updates so far have proven."""
        return self._bounds.known

    @property
    def nuisance_radius(self) -> Array:
        """Radii of the nuisance parameters, which all rows share, (M,)."""
        return self._unknowns.radius

    def add(self, block: SampleBlock) -> list[str]:
        """Add samples and return notices: faults of the stream, restarts, alarms.

        Raises:
            InvalidSamples: The block has another number of joints than the robot.
        """
        self._note(block)
        self.windows, notices = self.stream.add(block)
        if not self._excitation.windows:
            self._latest = None  # its shortfall is outdated
        for window in self.windows:
            if self._alarm is None and not self.stream.is_redundant(window):
                notices.extend(self._add_window(window))
        return notices

    def _note(self, block: SampleBlock) -> None:
        if self._noted is None or not len(block):
            return
        self._noted.append(block)
        if 1e-9 * float(block.stamps[-1] - self._noted[0].stamps[0]) > LONGEST_TARE:
            self._noted, self._why_none = None, f"it took more than {LONGEST_TARE:g} s"

    def complete(self) -> list[str]:
        """Solve the part that the last renewal of the bounds has left for the next window, and return notices."""
        return self._update() if self._bounds.is_waiting and self._alarm is None else []

    def estimate(self) -> ParameterEstimate:
        """Return the estimate from all windows so far; the prior before the first."""
        if self._alarm is not None:
            return self._no_estimate(self._alarm)
        if self._latest is None:
            # A copy of the warm start: reading the estimate must not change the next one.
            self._latest, _ = self._evaluate(copy(self._point))
        return self._latest

    def _settle(self) -> None:
        if not self._is_settled:
            self.stream.narrow(self._bounds.known.box)
            self._bounds.compact()
            self._is_settled = True

    def _add_window(self, window: Window) -> list[str]:
        self._settle()
        alarm = self._consistency.check_sensors(window)
        if alarm is not None:
            return self._raise_alarm(alarm)
        if self.tare is not None and self.stream.reference is None:
            at = window.start_stamp
            self._bounds.fixed.append(self.tare.rows_at(self._robot, self._unknowns, self.settings, at))
        rows = self.stream.build_rows(window)
        alarm = self._consistency.check_rows(rows)
        if alarm is not None:
            return self._handle_inconsistency(alarm)
        is_at_rest, before = self.stream.is_at_rest(window), self._motion
        if not is_at_rest:
            self._motion += float(rows.duration[0])
        elif self.target.label == PAYLOAD:
            self._rest = self._weigh(window, rows)
        self._bounds.rows.append(rows)
        self._excitation.add(rows)
        if self._change is not None:
            self._change.add(rows)
        self._latest = None
        if self._on_rows:
            self._on_rows(rows)
        is_due = self._is_late or self._bounds.is_waiting or self._is_due(self._excitation.windows)
        is_checked = before < EARLY_SECONDS <= self._motion
        # Either takes as long as a renewal, which then waits for the next window.
        is_busy = is_checked or self._consistency.searched > _MANY_ROWS
        self._is_late = is_due and not self._is_late and is_busy
        notices = self._check_early() if is_checked else []
        return notices + (self._update() if is_due and not self._is_late else [])

    def _check_early(self) -> list[str]:
        """Test once, in the first seconds of motion, whether these errors are those of another arm; one or two LPs."""
        known = [] if self._calibration is None else [self._calibration]  # a tare has no usual values
        agreement = measure_agreement(self._robot, self._unknowns, [*known, *self._consistency.recent])
        # A lag shows in more windows than these; in so few, vibration looks like one.
        self._doubt = "" if agreement is None else replace(agreement, lag=0.0).doubt
        return [self._doubt] if self._doubt else []

    def _is_due(self, windows: int) -> bool:
        """Return whether to renew the bounds with this number of windows.

        The first renewal lacks the cuts that solutions of others violate, so where these count there are two more in
        the time of the first: short motions are bounded better, and later renewals take fewer steps.
        """
        often = self.settings.update_windows
        has_cuts = self.settings.method == "set_membership" and self.settings.use_cone and bool(self.target.body)
        return windows % often == 0 or (has_cuts and often > 2 and windows in (often // 3, 2 * often // 3))

    def _weigh(self, window: Window, rows: Rows) -> RestTorque | None:
        """Bound the torque that balances gravity where a window is at rest, by its rows over its duration."""
        robot, box, unknowns, known = self._robot, self.bounds.box, self._unknowns, self._rest
        measured = window.block.q[window.start : window.stop + 1]
        if known is not None and np.any(np.abs(measured - known.posture) > _SAME_POSTURE):
            known = None
        posture = measured.mean(axis=0) if known is None else known.posture
        directions = gravity_rows(robot, posture)
        own, of_arm = directions[:, robot.inertial_slice(robot.n)], unknowns.center[: directions.shape[1]]
        problem = Problem.build(rows, box.center, box.radius, unknowns.radius, unknowns.end_error, own)
        shared = np.pad(directions, ((0, 0), (0, problem.b.shape[1] - directions.shape[1])))
        start, stop = window.block.stamps[[window.start, window.stop]]
        found = bound_with(problem, np.eye(len(rows)) / (1e-9 * float(stop - start)), shared)
        radius = found.radius + _ROUNDING * (np.abs(directions) @ np.abs(of_arm) + np.abs(found.center))
        torque: Box | None = Box.around(found.center + directions @ of_arm, radius)
        if known is not None and torque is not None:
            torque = torque.intersect(known.torque)
        # Where two windows contradict each other their rows do too, which the alarm reports.
        return None if torque is None else RestTorque(tuple(robot.joint_names), posture, torque)

    def _update(self) -> list[str]:
        change = None if self._change is None or self._payload_change else self._change.find()
        if change is not None and self.settings.detect_payload_change:
            return [self.reset(str(change))]
        self._payload_change = self._payload_change if change is None else str(change)
        estimate, update = self._evaluate(self._point, in_parts=True)
        if estimate.alarm is not None and not estimate.is_consistent:
            return self._handle_inconsistency(estimate.alarm)
        notice = None
        if update is not None:
            self._bounds.accept(update)
            notice = update.bounds.notice
        self._is_settled = False
        is_whole = not self._bounds.is_waiting
        self._latest = estimate if is_whole else None
        if self._on_update and is_whole:
            self._on_update(estimate)
        texts = (estimate.alarm, notice, change)
        return [str(text) for text in texts if text is not None]

    def _evaluate(
        self, point: PointEstimator | LinearEstimator, in_parts: bool = False
    ) -> tuple[ParameterEstimate, BoundUpdate | None]:
        """Compute estimate and bounds from all rows; changes nothing but the warm start of ``point``."""
        if not self._bounds.rows:
            shares = {"prior": self._bounds.known.ranges.radius}
            return self._make_estimate(self._unknowns.nominal, None, shares), None
        update = None
        try:
            update = self._bounds.evaluate(in_parts)
            if update.known is None:
                alarm = self._consistency.explain(update.problem, update.rows, update.bounds.infeasibility)
                return self._no_estimate(alarm), None
            values = point.estimate(update.problem.select(update.rows.window != BOUNDS_ONLY), update.known.box)
        except NoBodyInBox as failure:
            rows = Rows.stack(self._bounds.rows)
            alarm = self._consistency.explain(self._bounds.build_problem(rows), rows)
            alarm = replace(alarm, code=AlarmCode.NO_CONSISTENT_BODY, text=f"{failure}; {alarm}")
            return self._no_estimate(alarm), None
        except FitNotConverged as failure:
            nothing = np.full(self._unknowns.nominal.size, np.nan)
            alarm = Alarm(AlarmCode.FIT_NOT_CONVERGED, str(failure))
            return self._make_estimate(nothing, update, {}, alarm), update
        return self._make_estimate(values, update, update.bounds.shares), update

    def _handle_inconsistency(self, alarm: Alarm) -> list[str]:
        if self.settings.detect_payload_change and self._excitation.windows:
            return [self.reset(f"the payload has changed or an assumption is violated ({alarm})")]
        return self._raise_alarm(alarm)

    def _raise_alarm(self, alarm: Alarm) -> list[str]:
        self._alarm = alarm
        return [alarm.text]

    def _make_estimate(
        self, values: Array, update: BoundUpdate | None, shares: dict[str, Array], alarm: Alarm | None = None
    ) -> ParameterEstimate:
        """Combine a point estimate (P,) with the bounds of an update, or those so far."""
        known = self._bounds.known if update is None or update.known is None else update.known
        lower, upper, combinations = known.box.lower, known.box.upper, known.estimate_combinations(values, shares)
        if not known.target.body:
            shares = {}
        target, is_narrower = known.target, np.zeros(values.size, dtype=bool)
        narrower: frozenset[Quantity] = frozenset()
        if self._excitation.windows:
            before = self._bounds.prior
            before = without_data(before, target.shape) if target.body else before
            is_narrower = upper - lower <= NARROWER * before.width
            if target.body:
                narrower = find_narrower(Box(lower, upper), self._bounds.prior, target.shape)
        missing = [quantity.value for quantity in Quantity if target.body and quantity not in narrower]
        if combinations is not None and not np.all(combinations.is_narrower):
            missing.append(f"{np.count_nonzero(~combinations.is_narrower)} combinations")
        return replace(
            self._no_estimate(alarm),
            rest=self._rest,
            is_narrower=is_narrower,
            narrower=narrower,
            shortfall=self.stream.describe_shortfall(" and ".join(missing)) if missing else "",
            payload_change=self._payload_change,
            doubt=self._doubt,
            values=values,
            lower=lower,
            upper=upper,
            is_consistent=True,
            error_budget={name: share[: values.size] for name, share in shares.items()},
            combinations=combinations,
        )

    def _no_estimate(self, alarm: Alarm | None) -> ParameterEstimate:
        target, nothing = self._unknowns.target, np.full(self._unknowns.nominal.size, np.nan)
        return ParameterEstimate(
            values=nothing,
            lower=nothing,
            upper=nothing,
            method=self.settings.method,
            guarantee=describe_guarantee(self.settings, self._robot.payload_prior.name, self.tare is not None),
            is_guaranteed=is_guaranteed(self.settings),
            is_consistent=False,
            alarm=alarm,
            target=target.label,
            frame=target.frame,
            number_of_windows=self._excitation.windows,
            data_seconds=self._excitation.seconds,
            condition_number=self._excitation.condition_number(target.combinations.chosen),
            names=PARAMETER_NAMES if target.body else target.names,
            units=target.units,
        )


def _make_point_estimator(unknowns: Unknowns, settings: EstimatorSettings) -> PointEstimator | LinearEstimator:
    if not unknowns.target.body:
        return LinearEstimator()
    return PointEstimator(unknowns.nominal, unknowns.prior, settings.prior_weight, unknowns.shape)


@dataclass(frozen=True)
class WindowResiduals:
    """Mean torques of W windows, measured and explained, and how far apart they are.

    Attributes:
        times: Middle of each window since the first sample, (W,) [s].
        measured: Measured mean torque, less the nominal arm's, (W, n) [Nm].
        explained: Part of the estimated payload, (W, n) [Nm]; NaN without an estimate.
        allowed: Largest difference by errors and the uncertain arm, (W, n) [Nm].
    """

    times: Array
    measured: Array
    explained: Array
    allowed: Array

    @property
    def rms(self) -> Array:
        """Root mean square of measured minus explained per joint, (n,) [Nm]."""
        return np.asarray(np.sqrt(np.mean((self.measured - self.explained) ** 2, axis=0)))


def estimate_from_samples(
    robot: RobotModel,
    blocks: Iterable[SampleBlock],
    settings: EstimatorSettings | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> tuple[ParameterEstimate, list[ParameterEstimate], WindowResiduals]:
    """Estimate a payload from recorded samples; the same numbers as the streaming estimator gives online.

    Args:
        robot: The arm, its box and the payload prior.
        blocks: The samples, in the order they were taken, in blocks of any length.
        settings: Method and assumptions.
        on_notice: Called with every notice (gaps, restarts, alarms).

    Returns:
        The final estimate, the estimates after each renewal of the bounds, and the residuals of the windows.

    Raises:
        InvalidSamples: The blocks have another number of joints than the robot.
    """
    history: list[ParameterEstimate] = []
    windows: list[Rows] = []
    origin: int | None = None
    estimator = StreamingEstimator(robot, settings, on_rows=windows.append, on_update=history.append)
    notify = on_notice or (lambda notice: None)
    for block in blocks:
        if origin is None and len(block):
            origin = int(block.stamps[0])
        for notice in estimator.add(block):
            notify(notice)
    for notice in estimator.complete():
        notify(notice)
    estimate = estimator.estimate()
    return estimate, history, _residuals(robot, windows, estimate, estimator.nuisance_radius, origin or 0)


def _residuals(
    robot: RobotModel, windows: list[Rows], estimate: ParameterEstimate, delta_radius: Array, origin: int
) -> WindowResiduals:
    if not windows:
        none = np.zeros((0, robot.n))
        return WindowResiduals(np.zeros(0), none, none, none)
    rows = Rows.stack(windows)
    seconds = rows.duration
    shape = (-1, robot.n)
    allowed = np.abs(rows.b) @ delta_radius + rows.error
    middle = (0.5 * ((rows.start - origin) + (rows.stop - origin)) * 1e-9).reshape(shape)[:, 0]
    return WindowResiduals(
        times=np.asarray(middle, dtype=np.float64),
        measured=(rows.u / seconds).reshape(shape),
        explained=(rows.y @ estimate.values / seconds).reshape(shape),
        allowed=(allowed / seconds).reshape(shape),
    )
