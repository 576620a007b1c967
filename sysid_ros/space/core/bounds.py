"""Guaranteed bounds of the minimal parameters of a free-flying robot, and of an object that it holds.

Set membership on the momentum equations, by the linear programs that bound the payload of a fixed arm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.bounds.closed_form import LinearBounds
from sysid_ros.core.estimation.bounds.consistency import find_inconsistent_rows
from sysid_ros.core.estimation.bounds.set_membership import SidedBounds, WarmStart, bound_by_membership, seed_cuts
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.bounds import tighten
from sysid_ros.core.estimation.parameters.unknowns import object_within
from sysid_ros.core.estimation.point.fit import FitNotConverged, PointEstimator
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS, to_com_form, transform_matrix
from sysid_ros.space.core.measurements import Recording
from sysid_ros.space.core.minimal_parameters import MinimalParameters
from sysid_ros.space.core.momentum import PARAMETERS
from sysid_ros.space.core.momentum_rows import ERROR_TERMS, ROWS, Unknowns, build_problem
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

_ASSUMPTIONS = (
    "Contains the true parameters if the kinematics are as modelled, parameters and momentum lie in their boxes, the "
    "sensors keep their error bounds, the bodies are rigid, and force and torque from outside stay within their bounds"
)
_NOISE = (
    ". The error bounds of velocities are made of standard deviations: white Gaussian noise keeps all of them except "
    "with a probability of at most {:.2g}; other noise is not covered"
)
_TOLERANCE = 1e-2
"""Widening of bounds that is accepted, relative to their width [-]."""
_GROUP = 8
"""Objectives whose linear programs are solved together; more of them need more memory."""
_COM_ROUNDS = 3
_AXES = ("x", "y", "z")


class InconsistentMomentum(SysidError):
    """No parameters are consistent with all the data.

    Args:
        row: The row that shows it most, counted over all recordings; None for a joint inconsistency.
        excess: Its residual beyond the allowed errors [kg m/s, kg m^2/s].
    """

    def __init__(self, row: int | None, excess: float):
        self.row = row
        self.excess = excess
        place = "the rows are infeasible only together"
        if row is not None:
            kind, unit = ("linear", "kg m/s") if row % ROWS < 3 else ("angular", "kg m^2/s")
            place = (
                f"{kind} momentum along {_AXES[row % 3]} in block {row // ROWS} is off by {excess:.3g} {unit} too much"
            )
        super().__init__(
            f"no parameters are consistent with the momentum of all samples: {place}. Parameters or momentum lie "
            "outside their boxes, something pushes the robot, a unit or sign is wrong, or an error bound is too small"
        )


@dataclass(frozen=True, eq=False)
class FloatingBounds:
    """Bounds of K parameters; arrays are read-only.

    Attributes:
        names: Their names.
        units: Their units.
        box: Guaranteed bounds, (K,).
        prior: Bounds before any data, (K,).
        error_budget: Share of each source of error in the radii from the data, name -> (K,).
        probability: Probability that white Gaussian noise exceeds an error bound computed from its standard deviation
            [-], see :class:`SensorBounds`; 0 for given error bounds.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    box: Box
    prior: Box
    error_budget: dict[str, Array]
    probability: float = 0.0

    @property
    def guarantee(self) -> str:
        """The assumptions of the bounds, and the probability that these fail."""
        return _ASSUMPTIONS + (_NOISE.format(self.probability) if self.probability else "")


@dataclass(frozen=True, eq=False)
class ObjectEstimate:
    """The object in the hand of a robot.

    Attributes:
        frame: Frame of everything below, fixed to the body that holds it.
        bounds: Bounds of its ten inertial parameters.
        com_box: Bounds of its CoM, (3,) [m]; infinite where it may weigh nothing.
        values: Physically consistent point estimate within the bounds, (10,); NaN where the fit did not converge.
    """

    frame: str
    bounds: FloatingBounds
    com_box: Box
    values: Array

    @property
    def mass(self) -> float:
        """Estimated mass [kg]."""
        return float(self.values[0])

    @property
    def com(self) -> Array:
        """Estimated CoM, (3,) [m]."""
        return to_com_form(self.values)[1]


def bound_minimal(
    robot: FreeFlyer,
    minimal: MinimalParameters,
    recordings: list[Recording],
    prior: Box,
    tolerance: float = _TOLERANCE,
    passes: int = 2,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda share, text: None,
) -> FloatingBounds:
    """Bound the minimal parameters.

    Args:
        robot: The robot.
        minimal: Its minimal parameters.
        recordings: One or more.
        prior: Box known to hold them, (M,).
        tolerance: Widening of the bounds that is accepted, relative to their width [-].
        passes: Number of evaluations of errors that scale with the parameters, in the box found so far [-].
        is_cancelled: Polled between groups of linear programs.
        on_progress: Called with the done share, 0..1, and the present step.

    Returns:
        The bounds.

    Raises:
        Cancelled: ``is_cancelled`` returned true.
        InconsistentMomentum: No parameters in the prior are consistent with the data.
        ParameterOutOfRange: The prior has another size, or a recording is too short.
    """
    if prior.lower.shape != (minimal.count,):
        raise ParameterOutOfRange("the size of the prior", prior.lower.shape, f"({minimal.count},)")
    box, budget = prior, dict[str, Array]()
    for step in range(passes):
        problem = build_problem(robot, replace(known_minimal(minimal, box), target=minimal.count), recordings)
        _require_consistent(problem)
        sides = []
        for begin in range(0, minimal.count, _GROUP):
            if is_cancelled():
                raise Cancelled("the bounds were cancelled")
            share = (step + begin / minimal.count) / passes
            on_progress(share, f"bounds of {minimal.names[begin]} and on, pass {step + 1} of {passes}")
            sides.append(_bound(problem, np.arange(begin, min(begin + _GROUP, minimal.count)), tolerance))
        lower, upper = (np.concatenate([getattr(side, end) for side in sides]) for end in ("lower", "upper"))
        parts = [_error_budget(side, problem) for side in sides]
        budget = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        box = _intersected(box, lower, upper)
    on_progress(1.0, "done")
    return FloatingBounds(minimal.names, minimal.units, box, prior, budget, _probability(recordings))


def estimate_object(
    robot: FreeFlyer,
    frame: str,
    recordings: list[Recording],
    rest: Unknowns,
    prior: Box | None = None,
    passes: int = 3,
    earlier: FloatingBounds | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda share, text: None,
) -> ObjectEstimate:
    """Bound and estimate the inertial parameters of an unknown object that a body holds.

    Recordings without the object, made before the catch, narrow the robot's parameters at the same time.

    Args:
        robot: The robot.
        frame: Frame of the object's parameters, fixed to the body that holds it, see :meth:`FreeFlyer.frame`.
        recordings: One or more, with and perhaps without the object.
        rest: Bounds of the robot itself, see :func:`known_minimal`.
        prior: Box of the object's parameters in that frame, (10,); see :func:`object_within`.
        passes: See :func:`bound_minimal`.
        earlier: Bounds of the same object from other data; the new ones lie within them.
        is_cancelled: Polled between passes.
        on_progress: Called with the done share, 0..1, and the present step.

    Raises:
        Cancelled: ``is_cancelled`` returned true.
        InconsistentMomentum: No object in the prior is consistent with the data.
        ParameterOutOfRange: There is no such frame, or no recording holds the object.
    """
    columns = object_columns(robot, frame)
    if not any(recording.holds_object for recording in recordings):
        raise ParameterOutOfRange("recordings that hold the object", 0, "one or more")
    before, nominal = object_within(1000.0, 3.0) if prior is None else (prior, _nominal(prior))
    box, warm_start = before, WarmStart(cuts=seed_cuts(nominal))
    if earlier is not None:
        box = _intersected(box, earlier.box.lower, earlier.box.upper)
    for step in range(passes):
        if is_cancelled():
            raise Cancelled("the bounds were cancelled")
        on_progress(step / (passes + 1), f"bounds of the object, pass {step + 1} of {passes}")
        whole = Box(np.concatenate([box.lower, rest.box.lower]), np.concatenate([box.upper, rest.box.upper]))
        matrix = np.concatenate([columns, rest.matrix], axis=1)
        problem = build_problem(robot, Unknowns(matrix, whole, PARAMETERS), recordings)
        _require_consistent(problem)
        sides = bound_by_membership(problem, _TOLERANCE, warm_start)
        if sides.infeasibility is not None:
            raise InconsistentMomentum(None, np.nan)
        # The rows change with the box, so multipliers start anew; cuts of the cone hold for every object.
        warm_start = replace(sides.warm_start, multipliers=None, cut_multipliers=None)
        narrowed = tighten(_intersected(box, sides.lower, sides.upper))
        if narrowed is None:
            raise InconsistentMomentum(None, np.nan)
        box = narrowed
    budget = _error_budget(sides, problem)
    probability = _probability(recordings) + (0.0 if earlier is None else earlier.probability)
    bounds = FloatingBounds(PARAMETER_NAMES, PARAMETER_UNITS, box, before, budget, probability)
    try:
        values = PointEstimator(nominal, before, 1e-3).estimate(problem, box)
    except FitNotConverged:
        values = np.full(PARAMETERS, np.nan)
    on_progress(passes / (passes + 1), "bounds of its centre of mass")
    return ObjectEstimate(frame, bounds, _bound_com(problem, box, values, warm_start), values)


def object_columns(robot: FreeFlyer, frame: str) -> Array:
    """Return the effect of an object's parameters in a frame on the tree's, (10 B, 10)."""
    body, placement = robot.frame(frame)
    matrix = np.zeros((PARAMETERS * robot.tree.count, PARAMETERS))
    part = slice(PARAMETERS * body, PARAMETERS * (body + 1))
    matrix[part] = transform_matrix(placement.rotation, placement.translation)
    return matrix


def known_minimal(minimal: MinimalParameters, box: Box) -> Unknowns:
    """Return a robot's bounds as a box of its minimal parameters, (M,), as :func:`bound_minimal` returns it."""
    if box.lower.shape != (minimal.count,):
        raise ParameterOutOfRange("the size of the box", box.lower.shape, f"({minimal.count},)")
    return Unknowns(np.eye(minimal.matrix.shape[1])[:, minimal.kept], box, 0)


def _probability(recordings: list[Recording]) -> float:
    """Return a bound of the probability that noise exceeds an error bound in any of the recordings."""
    return float(sum(recording.sensors.probability for recording in recordings))


def _bound(problem: Problem, entries: NDArray[np.intp], tolerance: float) -> SidedBounds:
    part = replace(problem, objectives=np.eye(problem.center.size)[entries])
    sides = bound_by_membership(part, tolerance)
    if sides.infeasibility is not None:
        raise InconsistentMomentum(None, np.nan)
    return sides


def _bound_com(problem: Problem, box: Box, values: Array, warm_start: WarmStart) -> Box:
    """Bound the CoM: ``v <= m c_k - c m <= w`` gives ``c_k - c`` between ``v`` and ``w`` over the masses, for any c.

    From the point estimate each side moves to its last bound, where the quotient loses least.
    """
    if box.lower[0] <= 0.0:
        return Box(np.full(3, -np.inf), np.full(3, np.inf))
    point = values if np.all(np.isfinite(values)) else box.center
    ends = np.tile(point[1:4] / point[0], (2, 1))
    found, masses = np.array([np.full(3, -np.inf), np.full(3, np.inf)]), np.array([[box.lower[0]], [box.upper[0]]])
    for _ in range(_COM_ROUNDS):
        objectives = np.zeros((6, PARAMETERS))
        objectives[:, 0] = -ends.reshape(-1)
        objectives[np.arange(6), 1 + np.arange(6) % 3] = 1.0
        sides = bound_by_membership(replace(problem, objectives=objectives), _TOLERANCE, warm_start)
        lower, upper = sides.lower[:3] / masses, sides.upper[3:] / masses
        slack = 1e-14 * (np.abs(ends) + np.abs([lower, upper]).max(axis=1))
        found[0] = np.maximum(found[0], ends[0] + lower.min(axis=0) - slack[0])
        found[1] = np.minimum(found[1], ends[1] + upper.max(axis=0) + slack[1])
        ends = found.copy()
    return Box(found[0], found[1])


def _require_consistent(problem: Problem) -> None:
    rows = find_inconsistent_rows(problem)
    if rows.size:
        row = int(rows[0])
        allowed = np.abs(problem.y[row]) @ problem.radius + np.abs(problem.b[row]) @ problem.delta_radius
        allowed += problem.error[row] + np.abs(problem.ends[row]).sum(axis=0) @ problem.end_radius
        raise InconsistentMomentum(row, float(abs(problem.r[row]) - allowed))


def _intersected(box: Box, lower: Array, upper: Array) -> Box:
    if np.any(lower > upper):
        raise InconsistentMomentum(None, np.nan)
    result = Box(lower, upper).intersect(box)
    if result is None:
        raise InconsistentMomentum(None, np.nan)
    return result


def _nominal(prior: Box) -> Array:
    mass = float(prior.center[0])
    nominal = np.array(prior.center)
    com = nominal[1:4] / mass
    shift = mass * (com @ com * np.eye(3) - np.outer(com, com))
    size = max(0.1 * mass, float(np.mean(nominal[[4, 6, 9]]) - np.trace(shift) / 3.0))
    own = shift + size * np.eye(3)
    nominal[4:] = own[(0, 0, 1, 0, 1, 2), (0, 1, 1, 2, 2, 2)]
    return nominal


def _error_budget(sides: SidedBounds, problem: Problem) -> dict[str, Array]:
    """Return the share of each source of error, both sides averaged, scaled to the radii."""

    def mean(part: Callable[[LinearBounds], Array]) -> Array:
        return 0.5 * (part(sides.below) + part(sides.above))

    shares = {name: mean(lambda one, k=index: one.by_rows[:, k]) for index, name in enumerate(ERROR_TERMS)}  # type: ignore[misc]
    shares["velocity"] = shares["velocity"] + mean(lambda one: one.by_ends.sum(axis=1))
    shares["rest, momentum and wheels"] = mean(lambda one: one.by_delta.sum(axis=1))
    shares["prior"] = mean(lambda one: one.by_prior)
    shares["rounding"] = shares["rounding"] + mean(lambda one: one.by_rounding)
    scale = 0.5 * (sides.upper - sides.lower) / np.maximum(sum(shares.values()), 1e-300)
    return {name: share * scale for name, share in shares.items()}
