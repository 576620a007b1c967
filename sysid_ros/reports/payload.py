"""What the estimate says about the payload: in the frames people use, with bounds as far as they are rigorous."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.spatial import inverse_placement
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate, Quantity
from sysid_ros.core.estimation.point.fit import FitNotConverged, NoBodyInBox, nearest_body
from sysid_ros.core.model import inertia
from sysid_ros.core.model.robot import EffortMeaning, PayloadShape, RobotModel, frame_placement
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.reports.result import END_EFFECTOR, IdentificationResult

Array = NDArray[np.float64]

_ROUNDING = 64.0 * np.finfo(float).eps
"""Relative widening that covers the rounding of sums of up to ten products."""
_EXTENT = 0.005
"""Least radius of gyration along any axis of a payload that is exported [m]."""


@dataclass(frozen=True)
class Bounded:
    """Values with bounds; all three arrays have one shape.

    Attributes:
        values: Point estimates.
        lower: Lower bounds; -inf where nothing is known.
        upper: Upper bounds; +inf where nothing is known.
    """

    values: Array
    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        for name in ("values", "lower", "upper"):
            array = np.array(getattr(self, name), dtype=float)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __getitem__(self, index: Any) -> Bounded:
        """Return some entries, as of an array."""
        return Bounded(self.values[index], self.lower[index], self.upper[index])

    @property
    def width(self) -> Array:
        """Upper minus lower bound."""
        return self.upper - self.lower

    @property
    def is_bounded(self) -> bool:
        """Whether all bounds are finite."""
        return bool(np.all(np.isfinite(self.lower) & np.isfinite(self.upper)))

    def contains(self, point: ArrayLike) -> NDArray[np.bool_]:
        """Entry by entry, whether the point lies inside, borders included."""
        return (self.lower <= np.asarray(point)) & (np.asarray(point) <= self.upper)


def widened(lower: Array, upper: Array, scale: ArrayLike) -> tuple[Array, Array]:
    """Bounds moved outwards by a few rounding errors of numbers as large as ``scale``."""
    slack = _ROUNDING * np.asarray(scale, dtype=float)
    return lower - slack, upper + slack


def linear_map(matrix: Array, bounded: Bounded) -> Bounded:
    """``matrix @ x`` for every x inside: matrix (m, k), x (k,), result (m,)."""
    positive, negative = np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
    lower = positive @ bounded.lower + negative @ bounded.upper
    upper = positive @ bounded.upper + negative @ bounded.lower
    scale = np.abs(matrix) @ np.maximum(np.abs(bounded.lower), np.abs(bounded.upper))
    return Bounded(matrix @ bounded.values, *widened(lower, upper, scale))


def product(a: Bounded, b: Bounded) -> Bounded:
    """``x y`` for independent x in a and y in b, entry by entry; a square needs :func:`square`."""
    return Bounded(a.values * b.values, *_hull(np.multiply, a, b))


def _hull(operation: Callable[[Array, Array], Array], a: Bounded, b: Bounded) -> tuple[Array, Array]:
    corners = np.stack([operation(x, y) for x in (a.lower, a.upper) for y in (b.lower, b.upper)])
    return widened(corners.min(axis=0), corners.max(axis=0), np.abs(corners).max(axis=0))


def square(a: Bounded) -> Bounded:
    """``x x`` for x in a, entry by entry."""
    ends = np.stack([a.lower**2, a.upper**2])
    has_zero = (a.lower <= 0.0) & (a.upper >= 0.0)
    lower, upper = np.where(has_zero, 0.0, ends.min(axis=0)), ends.max(axis=0)
    lower, upper = widened(lower, upper, upper)
    return Bounded(a.values**2, np.maximum(lower, 0.0), upper)


def quotient(a: Bounded, b: Bounded) -> Bounded:
    """``x / y`` for independent x in a and y in b; unbounded where b touches zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values, (lower, upper) = a.values / b.values, _hull(np.divide, a, b)
    touches_zero = (b.lower <= 0.0) & (b.upper >= 0.0)
    return Bounded(values, np.where(touches_zero, -np.inf, lower), np.where(touches_zero, np.inf, upper))


def total(*terms: Bounded) -> Bounded:
    """Sum of independent terms of one shape."""
    values, lower, upper = (
        np.asarray(sum(getattr(t, name) for t in terms), dtype=np.float64) for name in ("values", "lower", "upper")
    )
    scale = sum(np.maximum(np.abs(t.lower), np.abs(t.upper)) for t in terms)
    return Bounded(values, *widened(lower, upper, scale))


def negated(a: Bounded) -> Bounded:
    """``-x`` for x in a."""
    return Bounded(-a.values, -a.upper, -a.lower)


def symmetric_eigenvalues(matrix: Bounded) -> Bounded:
    """Eigenvalues (k,), ascending, of every symmetric matrix (k, k) inside.

    Weyl: they differ from the ones of the midpoint by at most the spectral norm of the radius matrix.
    """
    values = np.asarray(np.linalg.eigvalsh(matrix.values), dtype=np.float64)
    if not matrix.is_bounded:
        return _unbounded(values)
    center = 0.5 * (matrix.lower + matrix.upper)
    radius = np.maximum(matrix.upper - center, center - matrix.lower)
    distance = np.linalg.eigvalsh(radius)[-1]
    middle = np.linalg.eigvalsh(center)
    scale = np.linalg.norm(center) + distance
    return Bounded(values, *widened(middle - distance, middle + distance, scale))


Placement = tuple[Array, Array]
"""Rotation (3, 3) and translation (3,) [m] of a frame seen from another."""


def in_frame(parameters: Bounded, frame_in_joint: Placement) -> Bounded:
    """Ten parameters about the last joint's frame, seen from another frame fixed to the last body; both (10,).

    Args:
        parameters: About the frame of the last joint.
        frame_in_joint: Rotation and translation of the other frame, seen from the frame of the last joint.
    """
    joint_in_frame = inverse_placement(*frame_in_joint)
    box = inertia.transform_box(Box(parameters.lower, parameters.upper), *joint_in_frame)
    return Bounded(inertia.transform_parameters(parameters.values, *joint_in_frame), box.lower, box.upper)


def payload_parameters(result: IdentificationResult) -> Bounded:
    """Return the payload about the frame of the last joint, (10,), without the last body if that is in the target."""
    return _payload_of(result.robot, result.estimate)


def exported_payload(robot: RobotModel, estimate: ParameterEstimate) -> Bounded:
    """Return the payload as it is shown and exported, ten parameters about the frame of the last joint, (10,).

    They are the estimate, with some extent in every direction: the best fit may be a rod or a point, which
    simulators refuse. What is left of an end effector without its nominal body need not be a body: then the nearest one
    within the bounds counts, where there is one.
    """
    known = _payload_of(robot, estimate)
    values = known.values
    if not known.is_bounded:
        return known
    if estimate.target == END_EFFECTOR and not inertia.is_physically_consistent(values):
        try:
            values = nearest_body(values, Box(known.lower, known.upper), robot.payload_prior.nominal)
        except (NoBodyInBox, FitNotConverged):
            return known
    extended = _with_extent(values)
    return Bounded(extended if np.all(known.contains(extended)) else values, known.lower, known.upper)


def _with_extent(theta: Array) -> Array:
    """Return a body (10,) with second moments about its CoM of at least :data:`_EXTENT` squared times its mass."""
    mass, com, tensor = inertia.to_com_form(theta)
    moments, axes = np.linalg.eigh(0.5 * np.trace(tensor) * np.eye(3) - tensor)
    least = mass * _EXTENT**2
    if moments[0] >= least:
        return theta
    moments = np.maximum(moments, least)
    return inertia.from_com_form(mass, com, axes @ np.diag(moments.sum() - moments) @ axes.T)


def bound_mass_and_com(robot: RobotModel, estimate: ParameterEstimate) -> tuple[Bounded, Bounded]:
    """Bound mass () [kg] and CoM (3,) [m] of a payload in the frame of the last joint, as :func:`summarize` does."""
    parameters, prior = _payload_of(robot, estimate), robot.payload_prior
    is_alone = estimate.is_guaranteed and prior.target == estimate.target == "payload"
    com = _bound_com(parameters, prior.shape if is_alone else None)
    return parameters[0], com


def _payload_of(robot: RobotModel, estimate: ParameterEstimate) -> Bounded:
    parameters = Bounded(estimate.values, estimate.lower, estimate.upper)
    if estimate.target != END_EFFECTOR:
        return parameters
    last_body = robot.inertial_slice(robot.n)
    box = robot.theta_box
    body = Bounded(robot.theta_nominal[last_body], box.lower[last_body], box.upper[last_body])
    return total(parameters, negated(body))


def tool_parameters(robot: RobotModel) -> Array:
    """Nominal parameters (10,), about the frame of the last joint, of all links behind the flange (a gripper, say)."""
    model, theta = robot.pin_model, np.zeros(10)
    behind = {model.getFrameId(robot.flange_frame)}
    for index, frame in enumerate(model.frames):  # parents come before children
        if frame.parentFrame in behind and frame.parentJoint == robot.n:
            behind.add(index)
            theta += frame.placement.act(frame.inertia).toDynamicParameters()
    # What the state of a gripper changes is in the nominal parameters alone, not in the links of the URDF.
    of_links = robot.pin_model.inertias[robot.n].toDynamicParameters()
    return theta + (robot.theta_nominal[robot.inertial_slice(robot.n)] - of_links)


@dataclass(frozen=True)
class PayloadSummary:
    """A payload in one frame.

    Attributes:
        frame: Name of the frame.
        parameters: The ten parameters about the frame's origin, (10,).
        com: Centre of mass, (3,) [m].
        inertia_com: Inertia about the centre of mass, axes of the frame, (3, 3) [kg m^2].
        principal_moments: Principal moments of inertia, ascending, (3,) [kg m^2].
        principal_axes: Their axes as columns of a right-handed rotation in the frame, (3, 3); of the point estimate,
            without bounds.
    """

    frame: str
    parameters: Bounded
    com: Bounded
    inertia_com: Bounded
    principal_moments: Bounded
    principal_axes: Array

    @property
    def mass(self) -> Bounded:
        """Mass [kg], shape ()."""
        return self.parameters[0]

    @property
    def rows(self) -> list[tuple[Quantity, str, str, Bounded]]:
        """Its numbers for a table: quantity, name, unit, and value with bounds."""
        rows = [(Quantity.MASS, "mass", "kg", self.mass)]
        rows += [(Quantity.COM, f"centre of mass {axis}", "m", self.com[i]) for i, axis in enumerate("xyz")]
        moments = self.principal_moments
        return [*rows, *((Quantity.INERTIA, f"principal moment {i + 1}", "kg m^2", moments[i]) for i in range(3))]


def summarize(
    parameters: Bounded, frame_in_joint: Placement, frame: str, shape: PayloadShape | None = None
) -> PayloadSummary:
    """Describe a payload in a frame fixed to the last body.

    Every bound is rigorous if the bounds of ``parameters`` are. The CoM is bounded about the joint frame first and
    then moved: moving the first moment would count the uncertainty of the mass twice.

    Args:
        parameters: Ten parameters about the frame of the last joint, (10,).
        frame_in_joint: Rotation and translation of the frame, seen from the frame of the last joint.
        frame: Name of the frame.
        shape: Shape of the payload as an object, which its CoM and moments cannot leave; None if unknown.
    """
    rotation, translation = inverse_placement(*frame_in_joint)
    com, largest = _bound_com(parameters, shape), np.inf
    if shape is not None:
        largest = float(np.nextafter(parameters.upper[0] * shape.gyration**2 * (1.0 + 1e-14), np.inf))
    inertia_joint = _inertia_about_com(parameters)
    inertia_com = _rotated(inertia_joint, rotation)
    moments = symmetric_eigenvalues(inertia_joint)
    # a body has no negative moment of inertia
    moments = _within(moments, 0.0, largest)
    limit = 0.5 * largest * (np.ones((3, 3)) + np.eye(3)) if np.isfinite(largest) else np.full((3, 3), np.inf)
    inertia_com = _within(inertia_com, np.where(np.eye(3) > 0.0, 0.0, -limit), limit)
    axes = np.linalg.eigh(inertia_com.values)[1]
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    com_in_frame = _moved(com, rotation, translation)
    if shape is not None and shape.turned is not None:
        axes, box = shape.turned.axes, shape.turned.box
        within = _moved(Bounded(axes.T @ com.values, box.lower, box.upper), rotation @ axes, translation)
        com_in_frame = _within(com_in_frame, within.lower, within.upper)
    return PayloadSummary(frame, in_frame(parameters, frame_in_joint), com_in_frame, inertia_com, moments, axes)


def _bound_com(parameters: Bounded, shape: PayloadShape | None) -> Bounded:
    bounds = inertia.bound_com(parameters.lower, parameters.upper, None if shape is None else shape.com)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Bounded(parameters.values[1:4] / parameters.values[0], *bounds)


def _within(bounded: Bounded, lower: ArrayLike, upper: ArrayLike) -> Bounded:
    """Narrow bounds by others that hold too; where they do not meet, the given ones stay."""
    low, high = np.maximum(bounded.lower, lower), np.minimum(bounded.upper, upper)
    meets = low <= high
    return Bounded(bounded.values, np.where(meets, low, bounded.lower), np.where(meets, high, bounded.upper))


def summarize_payload(result: IdentificationResult, frame: str | None = None) -> PayloadSummary:
    """Return the payload in a link's frame.

    Args:
        result: What was found.
        frame: Name of the link; None takes the frame of the last joint.

    Raises:
        ModelError: There is no such frame, or it is not fixed to the last body.
    """
    robot = result.robot
    placement = (np.eye(3), np.zeros(3)) if frame is None else frame_placement(robot, frame)
    prior = robot.payload_prior
    shape = prior.shape if result.is_rigorous and prior.target == result.estimate.target == "payload" else None
    return summarize(exported_payload(robot, result.estimate), placement, frame or robot.joint_names[-1], shape)


def summarize_behind_flange(result: IdentificationResult) -> PayloadSummary:
    """Return the payload and the tool, which is nominal, as one body in the frame of the flange.

    What is known of the payload's shape bounds the payload alone: the CoM of both lies on the line to that of the tool.
    """
    robot, payload = result.robot, exported_payload(result.robot, result.estimate)
    alone, tool = summarize_payload(result, robot.flange_frame), tool_parameters(robot)
    if not tool[0] > 0.0:
        return alone
    placement = frame_placement(robot, robot.flange_frame)
    both = Bounded(payload.values + tool, *widened(payload.lower + tool, payload.upper + tool, np.abs(tool)))
    whole = summarize(both, placement, robot.flange_frame)
    of_tool = inertia.to_com_form(inertia.transform_parameters(tool, *inverse_placement(*placement)))[1]
    center = Bounded(of_tool, of_tool, of_tool)
    masses = np.stack([alone.mass.values, alone.mass.lower, alone.mass.upper])
    shares = masses / (masses + tool[0])  # of the payload in the mass of both: rises with its mass
    share = Bounded(shares[0], *widened(shares[1], shares[2], shares[2]))
    com = total(center, product(share, total(alone.com, negated(center))))
    return replace(whole, com=_within(whole.com, com.lower, com.upper))


def felt_torques(robot: RobotModel, load: PayloadSummary, assumed: ArrayLike, q: ArrayLike) -> Array:
    """Bound the external torques that a controller sees at rest because its load is another one, (n,) [Nm].

    Args:
        robot: The arm.
        load: The load within its bounds, in a frame that is fixed to the last body.
        assumed: The load that the controller has, ten parameters in the same frame, (10,).
        q: Posture, (n,) [rad].
    """
    still, last = np.zeros((1, robot.n)), robot.inertial_slice(robot.n)
    weight = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE).evaluate(np.atleast_2d(q), still, still)[0][:, last]
    off = linear_map(weight @ inertia.transform_matrix(*frame_placement(robot, load.frame)), load.parameters)
    known = weight @ inertia.transform_parameters(assumed, *frame_placement(robot, load.frame))
    return np.maximum(np.abs(off.lower - known), np.abs(off.upper - known))


def notices(result: IdentificationResult) -> tuple[str, ...]:
    """Everything a reader must know: the warnings of the run, and notices that the numbers themselves cause."""
    change = [result.estimate.payload_change] if result.estimate.payload_change else []
    doubt = [result.agreement.doubt] if result.agreement is not None and result.agreement.doubt else []
    texts = [
        *result.warnings,
        *change,
        *doubt,
        *(f"the bounds are not guaranteed: {caveat}" for caveat in result.caveats),
    ]
    if not result.is_rigorous and not result.caveats:
        texts.append("the bounds are not guaranteed to contain the truth; the guarantee sentence says why")
    if result.is_usable:
        rated, mass = result.robot.rated_payload, payload_parameters(result)
        if mass.upper[0] > rated:
            relation = "is above" if mass.lower[0] > rated else "may be above"
            bound = f"upper bound {mass.upper[0]:.3f} kg"
            texts.append(f"the mass {relation} the arm's rated payload of {rated:g} kg ({bound})")
    if result.truth is not None and result.is_usable:
        outside = ~result.holds_truth
        if outside.any():
            names = ", ".join(np.array(inertia.PARAMETER_NAMES)[outside])
            prior, why = result.robot.payload_prior, "an assumption does not hold, or it is a bug"
            if prior.target == "payload" and not prior.contains(result.truth):
                why = f"the payload prior '{prior.name}' excludes it"
            texts.append(f"the truth lies OUTSIDE the bounds of {names}: {why}")
    return tuple(texts)


def _unbounded(values: Array) -> Bounded:
    return Bounded(values, np.full_like(values, -np.inf), np.full_like(values, np.inf))


def _moved(point: Bounded, rotation: Array, translation: Array) -> Bounded:
    if not point.is_bounded:
        return _unbounded(rotation @ point.values + translation)
    rotated = linear_map(rotation, point)
    scale = np.abs(translation) + np.maximum(np.abs(rotated.lower), np.abs(rotated.upper))
    lower, upper = widened(rotated.lower + translation, rotated.upper + translation, scale)
    return Bounded(rotated.values + translation, lower, upper)


def _inertia_about_com(parameters: Bounded) -> Bounded:
    """Inertia about the CoM (3, 3), axes of the joint frame: each entry as tight as the box of parameters allows."""
    mass, h = parameters[0], parameters[1:4]
    squares = square(h)
    off = quotient(product(h[:, None], h[None, :]), mass)
    diagonal = negated(quotient(total(squares[[1, 0, 0]], squares[[2, 2, 1]]), mass))
    names, is_diagonal = ("values", "lower", "upper"), np.eye(3, dtype=bool)
    shift = Bounded(*(np.where(is_diagonal, getattr(diagonal, name), getattr(off, name)) for name in names))
    return total(parameters[np.array([[4, 5, 7], [5, 6, 8], [7, 8, 9]])], shift)


def _rotated(matrix: Bounded, rotation: Array) -> Bounded:
    """``R M R^T`` for every symmetric M (3, 3) inside."""
    if not matrix.is_bounded:
        return _unbounded(rotation @ matrix.values @ rotation.T)
    flat = Bounded(matrix.values.ravel(), matrix.lower.ravel(), matrix.upper.ravel())
    mapped = linear_map(np.asarray(np.kron(rotation, rotation), dtype=np.float64), flat)
    return Bounded(*(getattr(mapped, name).reshape(3, 3) for name in ("values", "lower", "upper")))
