"""The estimator: samples in, parameters with bounds out, at bounded memory and bounded time per update."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.bounds.bounds import Bounds, compute_bounds, describe_guarantee
from sysid_ros.core.estimation.bounds.compaction import OF_BOUNDS, compact
from sysid_ros.core.estimation.bounds.cone_cuts import add_cuts
from sysid_ros.core.estimation.bounds.consistency import check_sensors, describe_contradictions, find_contradictions
from sysid_ros.core.estimation.bounds.joint_consistency import MEMORY, Agreement
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.bounds import Knowledge
from sysid_ros.core.estimation.parameters.estimate import CombinationEstimate, ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import PAYLOAD, EstimatorSettings
from sysid_ros.core.estimation.parameters.target import Target
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.point.fit import FitNotConverged, NoBodyInBox
from sysid_ros.core.estimation.point.point import LinearEstimator, PointEstimator
from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import SampleStream, Window
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

TURNS = 3
"""Every objective is solved at least in one of so many updates."""
_STILL = 5e-3
"""An objective whose range shrank by less than this part of it when it was last solved waits for its turn."""
_STIRRING = 0.05
"""One that shrinks by more than this makes all of them count as moving again."""


class Schedule:
    """Keeps which ranges moved when they were last computed anew, and how long ago that was.

    A range that is not computed anew holds as before, since new data only take targets away. It may be a little wider
    than what all data allow, for two updates at most.

    Args:
        count: Number of objectives K.
    """

    def __init__(self, count: int):
        self._is_moving = np.ones(count, dtype=bool)
        self._age = np.zeros(count, dtype=int)

    def due(self) -> NDArray[np.bool_]:
        """Objectives for the next update, (K,): all that move, and a part of the others, those that waited longest."""
        waiting = np.flatnonzero(~self._is_moving)
        turn = -(-waiting.size // TURNS)
        result = self._is_moving.copy()
        result[waiting[np.argsort(-self._age[waiting], kind="stable")[:turn]]] = True
        return result | (self._age >= TURNS - 1)

    def note(self, solved: NDArray[np.bool_], gain: Array) -> None:
        """Notes an update.

        Args:
            solved: Objectives that were solved, (K,).
            gain: By how much their ranges shrank, as a part of what they were, (K,).
        """
        self._age = np.where(solved, 0, self._age + 1)
        self._is_moving = np.where(solved, gain > _STILL, self._is_moving)
        if np.any(solved & (gain > _STIRRING)):
            self._is_moving[:] = True


_CAUSES = (
    "The payload has changed or lies outside its prior, or an assumption is violated: robot and friction parameters in "
    "their box, error bounds of the sensors, meaning and sign of the torque, direction of gravity, no contact"
)

_REST_WINDOWS = 5
"""Windows at rest that count before most of them are left out."""


class StreamingEstimator:
    """Estimates a payload, another body or all of them from samples as they arrive.

    Bounds are renewed after every ``update_windows`` windows and intersected with the earlier ones, so they only shrink
    until :meth:`reset`. The results do not depend on how the samples are cut into blocks.

    Args:
        robot: The arm, what is known of it and of the payload.
        settings: Method and assumptions.
        on_rows: Called with the rows of every window that is used.
        on_update: Called with the estimate after every renewal of the bounds.

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
    ):
        self._settings = settings or EstimatorSettings()
        self._robot = robot
        self._unknowns = describe_unknowns(robot, self._settings)
        self._model = WindowModel(robot, self._settings, self._unknowns)
        self._stream = SampleStream(robot, self._settings)
        self._velocity_error = robot.sensors.velocity_error * ("velocity" in self._settings.error_terms)
        self._on_rows, self._on_update = on_rows, on_update
        self._origin: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._rows: list[Rows] = []
        self._memory: list[Rows] = []
        self._bounds: Bounds | None = None
        self._schedule = Schedule(len(self._unknowns.target.objectives))
        self._known = Knowledge.of_prior(self._unknowns.target)
        self._agreement = Agreement()
        self._point: PointEstimator | LinearEstimator = LinearEstimator()
        if self._unknowns.target.body:
            self._point = PointEstimator(self._unknowns.nominal, self._unknowns.prior, self._settings.prior_weight)
        self._gram = np.zeros((self._unknowns.nominal.size,) * 2)
        self._windows, self._seconds = 0, 0.0
        self._rest_windows, self._rest_stamp = 0, 0
        self._alarm = ""
        self._latest: ParameterEstimate | None = None

    def reset(self, reason: str) -> str:
        """Forgets all data, as after a change of payload; returns a notice that says why."""
        windows = self._windows
        self._stream.clear()
        self._forget()
        return f"estimate restarted after {windows} windows: {reason}"

    def information(self) -> Array:
        """Gram matrix (P, P) of the observation matrix in terms of mean torques [Nm^2 per parameter^2]."""
        return self._gram.copy()

    @property
    def target(self) -> Target:
        """What is identified."""
        return self._unknowns.target

    @property
    def nuisance_radius(self) -> Array:
        """Half widths of what is unknown of the arm and shared by all rows, (M,)."""
        return self._unknowns.radius

    def add(self, block: SampleBlock) -> list[str]:
        """Takes samples and returns notices: faults of the stream, restarts, alarms.

        Raises:
            InvalidSamples: The block has another number of joints than the robot.
        """
        if self._origin is None and len(block):
            self._origin = int(block.stamps[0])
        windows, notices = self._stream.add(block)
        for window in windows:
            if not self._alarm and not self._is_redundant(window):
                notices.extend(self._take(window))
        return notices

    def estimate(self) -> ParameterEstimate:
        """The estimate from all windows so far; the prior before the first."""
        if self._alarm:
            return self._no_estimate(self._alarm)
        if self._latest is None:
            # A copy: how often somebody looks at the estimate must not change what it becomes.
            outcome = self._evaluate(copy(self._point))
            self._latest = outcome.estimate
        return self._latest

    def _is_redundant(self, window: Window) -> bool:
        """Whether the arm has rested so long that this window says what others have said; one in a while counts."""
        settings = self._settings
        block = window.block.slice(window.start, window.stop + 1)
        slow = self._robot.sensors.velocity_error + settings.stiction_speed
        if not settings.rest_interval or np.any(np.abs(block.v) > slow):
            self._rest_windows, self._rest_stamp = 0, 0
            return False
        stamp = int(block.stamps[-1])
        self._rest_windows += 1
        if self._rest_windows > _REST_WINDOWS and stamp - self._rest_stamp < settings.rest_interval * 1e9:
            return True
        self._rest_stamp = stamp
        return False

    def _take(self, window: Window) -> list[str]:
        fault = check_sensors(self._model, window.block, window.start, window.stop)
        if fault:
            return [self._raise_alarm(f"window {window.number}: {fault}")]
        rows = build_rows(self._model, window.block, window.start, window.stop, window.number)
        problem = self._problem(rows)
        if find_contradictions(problem).size:
            return self._handle_contradiction(self._explain(problem, rows))
        contradiction = self._find_joint_contradiction(problem, rows)
        if contradiction:
            return self._handle_contradiction(contradiction)
        self._rows.append(rows)
        self._memory = [*self._memory, rows][-max(MEMORY, self._settings.max_windows) :]
        mean = rows.y / rows.duration[:, None]
        self._gram += mean.T @ mean
        self._windows += 1
        self._seconds += float(rows.duration[0])
        self._latest = None
        if self._on_rows:
            self._on_rows(rows)
        return self._update() if self._windows % self._settings.update_windows == 0 else []

    def _find_joint_contradiction(self, window: Problem, rows: Rows) -> str:
        """What contradicts if a window does not agree with those before it; empty if it does."""
        if self._settings.method == "sensitivity":  # guarantees nothing, so nothing contradicts it
            return ""
        compacted = [part for part in self._rows if part.window[0] < 0]
        parts = [*compacted, *self._memory, rows]
        cuts = () if self._bounds is None or self._bounds.cuts is None else self._bounds.cuts

        def build_all() -> Problem:
            problem = self._problem(Rows.stack(parts))
            return add_cuts(problem, cuts) if len(cuts) else problem

        found = self._agreement.contradiction(window, rows, build_all)
        if found is None:
            return ""
        everything = Rows.stack(parts)
        return self._explain(self._problem(everything), everything, found[len(cuts) :])

    def _update(self) -> list[str]:
        due = self._schedule.due()
        outcome = self._evaluate(self._point)
        if outcome.known is None:
            return self._handle_contradiction(outcome.estimate.alarm)
        if outcome.bounds is not None:
            self._schedule.note(due, self._known.gain(outcome.bounds.lower, outcome.bounds.upper))
            self._bounds = outcome.bounds
        self._known, self._latest = outcome.known, outcome.estimate
        self._shorten()
        if self._on_update:
            self._on_update(outcome.estimate)
        notice = "" if outcome.bounds is None else outcome.bounds.notice
        return [text for text in (outcome.estimate.alarm, notice) if text]

    def _evaluate(self, point: PointEstimator | LinearEstimator) -> _Outcome:
        """Bounds and point estimate of all rows; changes nothing but the warm start of ``point``."""
        known = self._known
        if not self._rows:
            shares = {"prior": known.ranges.radius}
            return _Outcome(known, self._make(self._unknowns.nominal, known, shares, ""))
        rows = Rows.stack(self._rows)
        problem, narrowed, bounds = self._problem(rows), known, None
        try:
            due = self._schedule.due()
            bounds = compute_bounds(problem, self._unknowns, self._settings, point.start, self._bounds, due)
            narrowed = self._combine(bounds)
            if narrowed is None or find_contradictions(problem).size:
                return _Outcome(None, self._no_estimate(self._explain(problem, rows, bounds.contradiction)))
            if bounds.values is not None:
                return _Outcome(narrowed, self._make_local(bounds))
            values = point.estimate(self._problem(rows.select(rows.window != OF_BOUNDS)), narrowed.box).theta
        except NoBodyInBox as failure:
            return _Outcome(None, self._no_estimate(f"{failure}; {self._explain(problem, rows)}"))
        except FitNotConverged as failure:
            nothing = np.full(self._unknowns.nominal.size, np.nan)
            return _Outcome(narrowed, self._make(nothing, narrowed, {}, str(failure)), bounds)
        estimate = self._make(values, narrowed, bounds.shares, "")
        return _Outcome(narrowed, estimate, bounds)

    def _combine(self, bounds: Bounds) -> Knowledge | None:
        if not bounds.is_rigorous:
            return self._known
        return None if bounds.contradiction is not None else self._known.narrowed(bounds.lower, bounds.upper)

    def _problem(self, rows: Rows) -> Problem:
        box = self._known.box
        objectives = self._unknowns.target.objectives
        return Problem.build(rows, box.center, box.radius, self._unknowns.radius, self._velocity_error, objectives)

    def _shorten(self) -> None:
        """Compacts the older rows if with the next update there would be too many windows."""
        stored = sum(1 for rows in self._rows if rows.window[0] >= 0)
        if stored + self._settings.update_windows <= self._settings.max_windows:
            return
        keep = max(1, self._settings.max_windows // 2)
        old, recent = Rows.stack(self._rows[:-keep]), self._rows[-keep:]
        if self._settings.method != "sensitivity":
            multipliers = self._bounds.multipliers
            # The combinations behind sided bounds say more than a left inverse, however good.
            steps = 0 if self._settings.method == "set_membership" else self._settings.reweightings
            compacted, combined = compact(old, self._problem(old), steps, multipliers[:, : len(old)])
            recent = [compacted, *recent]
            multipliers = np.concatenate([combined, multipliers[:, len(old) :]], axis=1)
            self._bounds = replace(self._bounds, multipliers=multipliers)
        self._rows = recent

    def _handle_contradiction(self, text: str) -> list[str]:
        if self._settings.detect_payload_change and self._windows:
            return [self.reset(f"the payload has changed or an assumption is violated ({text})")]
        return [self._raise_alarm(text)]

    def _raise_alarm(self, text: str) -> str:
        self._alarm = text
        return text

    def _explain(self, problem: Problem, rows: Rows, combination: Array | None = None) -> str:
        names = self._robot.joint_names
        detail = describe_contradictions(problem, rows, names, self._origin or 0, combination)
        what = "payload agrees" if self._settings.body == PAYLOAD else "parameters agree"
        return f"no {what} with all the data: {detail}. {_CAUSES}."

    def _no_estimate(self, alarm: str) -> ParameterEstimate:
        nothing = np.full(self._unknowns.nominal.size, np.nan)
        return self._build(nothing, nothing, nothing, {}, alarm, is_consistent=False)

    def _make(self, values: Array, known: Knowledge, shares: dict[str, Array], alarm: str) -> ParameterEstimate:
        of_entries = {name: share[: values.size] for name, share in shares.items()} if known.target.body else {}
        combinations = known.combinations(values, shares)
        return self._build(values, known.box.lower, known.box.upper, of_entries, alarm, True, combinations)

    def _make_local(self, bounds: Bounds) -> ParameterEstimate:
        """The estimate by a method that guarantees nothing and comes with its own values."""
        return self._build(bounds.values, bounds.lower, bounds.upper, bounds.shares, "", is_consistent=True)

    def _build(
        self,
        values: Array,
        lower: Array,
        upper: Array,
        shares: dict[str, Array],
        alarm: str,
        is_consistent: bool,
        combinations: CombinationEstimate | None = None,
    ) -> ParameterEstimate:
        target = self._unknowns.target
        chosen = target.combinations.chosen
        eigenvalues = np.linalg.eigvalsh(self._gram[np.ix_(chosen, chosen)])
        condition = np.sqrt(eigenvalues[-1] / eigenvalues[0]) if eigenvalues[0] > 0.0 else np.inf
        return ParameterEstimate(
            values=values,
            lower=lower,
            upper=upper,
            method=self._settings.method,
            guarantee=describe_guarantee(self._settings),
            is_consistent=is_consistent,
            alarm=alarm,
            target=target.label,
            frame=target.frame,
            number_of_windows=self._windows,
            data_seconds=self._seconds,
            condition_number=float(condition),
            error_budget=shares,
            names=PARAMETER_NAMES if target.body else target.names,
            units=target.units,
            combinations=combinations,
        )


@dataclass(frozen=True)
class _Outcome:
    """An estimate, what is known with it (None where no target agrees with everything) and the bounds behind it."""

    known: Knowledge | None
    estimate: ParameterEstimate
    bounds: Bounds | None = None
