"""Uncertainty of the inertial parameters and of the inertia that follows from it (step 2 of the proof).

The arm's parameters lie in a box, the payload's in a smaller set. Here the parameters are those of the inertia, ordered
as ``[inertial (10 n) | armature (n)]``. The ratio of true to nominal inertia in any direction is an eigenvalue of
``E = M^-1 H``. The largest eigenvalue of a symmetric matrix is convex in it and the smallest one concave, so over a
convex hull they are attained at its vertices: those of the payload set. The arm's parameters are many but known well;
with ``W_l = M^-1/2 (dH/dtheta_l) M^-1/2`` a deviation of at most d_l adds at most ``d_l (W_l^2)^1/2``. Where bodies are
known in the order of pseudo-inertias, the inertia lies between those with the smallest and the largest bodies, and the
better of both bounds counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core import kernel
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.inertia import from_com_form, inertia_matrix, pack
from sysid_ros.core.model.robot import INERTIAL, PayloadShape, RobotModel
from sysid_ros.core.tracking_bound.inertia_columns import (
    congruence,
    inertia_columns,
    largest_eigenvalue,
    largest_of_several,
    magnitude,
)

Array = NDArray[np.float64]
_ROUNDING = 1e-9
_IS_POSITIVE = np.isin(np.arange(INERTIAL), [0, 4, 6, 9])
"""Parameters of a body that add a positive semidefinite inertia: mass and moments about the axes."""
_MOST_IMPORTANT = 16
"""Number of parameters for which the magnitude of the change is computed as a matrix."""
_STEP = 0.02
"""Step of the differences in position [rad]."""
_FAR = 0.06
"""Difference of ratios, of the larger ones relative to them, that such a step does not make up for."""


class Vertices:
    """Vertices of a set of payload parameters about its center, for maxima of convex functions over the set.

    Args:
        offsets: Differences from the center, (K, 10).

    Attributes:
        used: Parameters in which they differ, (P,).
        weights: Weights of the center, which is 1, and of each of these, (K, 1 + P).
    """

    def __init__(self, offsets: Array):
        self.used = np.flatnonzero(np.any(offsets != 0.0, axis=0))
        self.weights = np.ascontiguousarray(np.column_stack([np.ones(len(offsets)), offsets[:, self.used]]))

    def largest_vectors(self, center: Array, parts: Array, metric: Array) -> tuple[Array, Array]:
        """Compute the largest length ``(x^T M x)^1/2`` of vectors x over all vertices, and of each of their entries.

        Args:
            center: x of the center, (T, n).
            parts: x by parameter of the last body, (T, n, 10).
            metric: M, (T, n, n).

        Returns:
            Lengths (T,) and entries (T, n).
        """
        vectors = np.concatenate([center[:, None], parts[..., self.used].swapaxes(1, 2)], axis=1)
        lengths, entries = np.empty(len(center)), np.empty_like(center)
        kernel.largest_vectors(self.weights, vectors, np.ascontiguousarray(metric), lengths, entries)
        return lengths, entries


_DIAGONAL = [4, 6, 9]
_PRODUCTS = ((5, 4, 6, 9), (7, 4, 9, 6), (8, 6, 9, 4))  # Ixy: Ixx, Iyy, and the moment about the third axis, ...
_MASSES = 8
"""Parts that the range of the mass of an object is divided into."""
_WIDE = 0.5
"""Sum of the radii of the moments of inertia, in units of their largest trace, from which the box is not used."""
_PAD = 1e-12
"""Relative rounding allowance."""


@dataclass(frozen=True)
class PayloadSet:
    """Enclosures of a set P of payload parameters (10,), to be added to the last body's.

    Attributes:
        replaces: Whether P holds the last body and its payload together, and replaces the last body instead.
        vertices: Every member of P is in the convex hull of these, plus ``+- radius``, (K, 10).
        radius: (10,).
        lower: Every member has at least the kinetic energy of some convex combination of these, (K, 10).
        upper: Every member has at most that of some convex combination of these, for O enclosures, (O, K, 10).
    """

    replaces: bool
    vertices: Array
    radius: Array
    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        for array in (self.vertices, self.radius, self.lower, self.upper):
            array.setflags(write=False)  # shared by other motions

    @classmethod
    def of_shape(cls, mass: tuple[float, float], shape: PayloadShape) -> PayloadSet:
        """Enclose all objects with a mass in a range and a given shape.

        Let c be a convex combination of the corners of its box with weights that are products over the axes. The same
        combination of ``c_i c_j`` is exact, and that of ``c_i^2`` exceeds it by 0 to ``d_i^2``, with d the radii.

        Args:
            mass: Smallest and largest mass [kg].
            shape: Box of the CoM and radius of gyration.
        """
        corners = [np.array(corner) for corner in product(*zip(shape.com.lower, shape.com.upper, strict=True))]
        excess = shape.com.radius**2
        missing = excess.sum() * np.eye(3) - np.diag(excess)  # most that the corners' moments exceed those at c, per kg
        spin = shape.gyration**2
        high, low = spin * np.eye(3), -missing
        middle = 0.5 * (high + low)
        moments = 0.5 * (np.full((3, 3), spin) + np.diag(np.diag(missing)))  # of the box about the middle, per kg
        moments[~np.eye(3, dtype=bool)] = 0.5 * spin

        def objects(inertia: Array, masses: list[float]) -> Array:
            per_kg = np.array([from_com_form(1.0, c, inertia) for c in corners])
            return np.unique(np.concatenate([m * per_kg for m in masses]), axis=0)

        both = sorted(set(mass))
        radius = pack(0.0, np.zeros(3), mass[1] * moments)
        # The addition from above is a body, so a lighter one has less energy.
        most = objects(high, both[-1:])
        return cls(False, objects(middle, both), radius * (1.0 + _PAD), objects(low, both), most[None])

    @classmethod
    def of_objects(cls, box: Box, shape: PayloadShape) -> PayloadSet | None:
        """Enclose all objects of a given shape in a box; None where there are none.

        A heavier object in the box has its CoM in a smaller part of the shape's, so masses are divided: each object is
        in the enclosure of its part, and a statement that holds at all vertices of all parts holds for it.

        Args:
            box: Box of the parameters, (10,).
            shape: Box of the CoM and radius of gyration.
        """
        bounds = (one.tobytes() for one in (box.lower, box.upper, shape.com.lower, shape.com.upper))
        return cls._of_bounds(*bounds, shape.gyration)

    @classmethod
    @lru_cache(maxsize=64)
    def _of_bounds(
        cls, lower: bytes, upper: bytes, com_lower: bytes, com_upper: bytes, gyration: float
    ) -> PayloadSet | None:
        """Enclose the bounds of box and CoM, cached: a search bounds many motions with the same ones."""
        box, com = (
            Box(np.frombuffer(low), np.frombuffer(high)) for low, high in ((lower, upper), (com_lower, com_upper))
        )
        shape = PayloadShape(com, gyration)
        lightest, heaviest = max(float(box.lower[0]), 0.0), float(box.upper[0])
        if lightest <= 0.0:
            return cls.of_shape((lightest, heaviest), shape)
        edges, sets = np.linspace(lightest, heaviest, _MASSES + 1 if lightest < heaviest else 2), []
        for low, high in zip(edges, edges[1:], strict=False):
            part = _narrowed(shape, (float(low), float(high)), box)
            if part is not None:
                sets.append(cls.of_shape((float(low), float(high)), part))
        return cls._of_any(sets) if sets else None

    @classmethod
    def _of_any(cls, sets: list[PayloadSet]) -> PayloadSet:
        """Enclose the union of sets that are added to the last body, each with one enclosure from above."""
        vertices, lower, upper = (
            np.unique(np.concatenate(parts), axis=0)
            for parts in zip(*((one.vertices, one.lower, one.upper[0]) for one in sets), strict=True)
        )
        return cls(False, vertices, np.max([one.radius for one in sets], axis=0), lower, upper[None])

    @classmethod
    def of_box(cls, box: Box, replaces: bool) -> PayloadSet:
        """Enclose all bodies in a box."""
        box = tighten(box)
        center, radius = box.center, box.radius
        first = np.array(list(product(*zip(box.lower[:4], box.upper[:4], strict=True))))
        spread, middle = inertia_matrix(radius), inertia_matrix(center)
        rows = np.diag(spread.sum(axis=1))  # -rows <= X <= rows for every |X| <= spread
        trace = 0.5 * box.upper[_DIAGONAL].sum()  # of the second moments S; I = tr(S) 1 - S <= tr(S) 1
        upper = [_combine(first, [high]) for high in (middle + rows, trace * np.eye(3))]
        lower = _combine(first, [middle - rows])
        if radius[_DIAGONAL].sum() < _WIDE * trace:
            only_moments = np.where(np.arange(INERTIAL) >= 4, radius, 0.0) * (1.0 + _PAD)
            return cls(replaces, _combine(first, [middle]), only_moments, lower, np.stack(upper))
        return cls(replaces, _combine(first, _moments_of_trace(trace)), np.zeros(INERTIAL), lower, np.stack(upper))


def _combine(first: Array, moments: list[Array]) -> Array:
    """Combine every mass and first moment (C, 4) with every matrix of moments of inertia (3, 3), (K, 10)."""
    second = np.array([pack(0.0, np.zeros(3), inertia)[4:] for inertia in moments])
    rows = np.concatenate([np.tile(first, (len(second), 1)), np.repeat(second, len(first), axis=0)], axis=1)
    return np.unique(rows, axis=0)


def _moments_of_trace(trace: float) -> list[Array]:
    """List moments of inertia whose convex combinations include those of all bodies with ``tr(S)`` up to ``trace``.

    ``S >= 0`` has ``|S_ij| <= (S_ii + S_jj) / 2``; this bound is linear in the diagonal, which lies in a simplex.
    """
    result = [np.zeros((3, 3))]
    for axis in range(3):
        for one, two in product((-0.5, 0.5), repeat=2):
            second = np.zeros((3, 3))
            second[axis, axis] = 1.0
            second[axis, axis - 1] = second[axis - 1, axis] = one
            second[axis, axis - 2] = second[axis - 2, axis] = two
            result.append(trace * (1.0 + _PAD) * (np.eye(3) - second))
    return result


def tighten(box: Box) -> Box:
    """Tighten a box of ten parameters with the conditions that every body in it fulfils.

    With second moments ``S = tr(I)/2 1 - I >= 0``: diagonal entries of I are not negative and obey the triangle
    inequality, and ``|Ixy| = |Sxy| <= (Sxx + Syy)/2 = Izz/2``.
    """
    lower, upper = np.array(box.lower), np.array(box.upper)
    lower[[0, *_DIAGONAL]] = np.maximum(lower[[0, *_DIAGONAL]], 0.0)
    for i in range(3):
        one, two, three = _DIAGONAL[i], _DIAGONAL[i - 1], _DIAGONAL[i - 2]
        upper[one] = min(upper[one], upper[two] + upper[three])
    for i in range(3):
        one, two, three = _DIAGONAL[i], _DIAGONAL[i - 1], _DIAGONAL[i - 2]
        lower[one] = max(lower[one], lower[two] - upper[three], lower[three] - upper[two])
    for index, _, _, third in _PRODUCTS:
        upper[index] = min(upper[index], 0.5 * upper[third])
        lower[index] = max(lower[index], -0.5 * upper[third])
    if not np.all(lower <= upper):
        return box  # it contains no body, so any statement about its bodies is true
    return Box(lower, upper)


def candidate_sets(model: ControlModel, last_body: Box) -> list[PayloadSet]:
    """List enclosures of the payload of a model; each of them is valid.

    Args:
        model: Its payload box, and shape if it has one.
        last_body: Box of the parameters of the last body without payload, (10,).
    """
    box = model.payload_box
    if box.lower[0] < 0.0:  # it is a body only together with the last one
        return [PayloadSet.of_box(box + last_body, True)]
    sets = [PayloadSet.of_box(box, False)]
    objects = None if model.shape is None else PayloadSet.of_objects(box, model.shape)
    return sets if objects is None else [*sets, objects]


def _narrowed(shape: PayloadShape, mass: tuple[float, float], box: Box) -> PayloadShape | None:
    """Intersect the CoM of a shape with that in a box, of masses in a range; None where they are disjoint."""
    lightest, heaviest = mass
    low, high = box.lower[1:4], box.upper[1:4]
    com = Box(np.minimum(low / lightest, low / heaviest), np.maximum(high / lightest, high / heaviest))
    common = shape.com.intersect(com)
    return None if common is None else PayloadShape(common, shape.gyration)


@dataclass(frozen=True)
class InertialUncertainty:
    """Set of the true inertial parameters: ``arm +- radius``, with a member of ``payloads`` added to the last body.

    Attributes:
        theta: Nominal parameters of the arm without payload, (11 n,).
        payload: Nominal payload of the controller, (10,).
        arm: Middle of the box of the arm's, (11 n,); zero for the last body where ``payloads`` replaces it.
        radius: Radii of that box, (11 n,), likewise.
        payloads: Set of payloads, or of last bodies with payload.
        last: Entries of the last body.
        energies: Parameters with which the arm has the least and the most kinetic energy in any motion, each (11 n,),
            as far as whole bodies are known; zero for the last body where ``payloads`` replaces it. None if they are
            not.
    """

    theta: Array
    payload: Array
    arm: Array
    radius: Array
    payloads: PayloadSet
    last: slice
    energies: tuple[Array, Array] | None = None

    @classmethod
    def of(cls, robot: RobotModel, model: ControlModel, payloads: PayloadSet) -> InertialUncertainty:
        """Build the set for one enclosure of the payload."""
        last = robot.inertial_slice(robot.n)
        lower, upper = (inertial(robot, bound) for bound in (model.theta_box.lower, model.theta_box.upper))
        box = Box(lower, upper)
        arm, radius = box.center, box.radius.copy()
        energies = None
        if robot.inertia_order is not None:
            order, split = robot.inertia_order, INERTIAL * robot.n
            energies = np.append(order.lower, lower[split:]), np.append(order.upper, upper[split:])
        if payloads.replaces:
            arm[last] = radius[last] = 0.0
            for part in energies or ():
                part[last] = 0.0
        return cls(inertial(robot, model.theta), model.payload, arm, radius, payloads, last, energies)

    @cached_property
    def nominal(self) -> Array:
        """Nominal parameters of the arm with the nominal payload, (11 n,)."""
        total: Array = self.theta.copy()
        total[self.last] += self.payload
        return total

    @cached_property
    def center(self) -> Array:
        """Deviation of the set's center from the nominal parameters, (11 n,)."""
        values: Array = self.arm - self.nominal
        values[self.last] += self.payloads.vertices.mean(axis=0)
        return values

    @cached_property
    def vertices(self) -> Vertices:
        """Vertices of the payload set about their mean."""
        return Vertices(self.payloads.vertices - self.payloads.vertices.mean(axis=0))

    @property
    def largest_deviation(self) -> Array:
        """Largest magnitudes of the deviation from the nominal parameters, (11 n,)."""
        largest: Array = np.abs(self.center)
        offsets = self.payloads.vertices - self.payloads.vertices.mean(axis=0)
        largest[self.last] = np.abs(self.center[self.last] + offsets).max(axis=0)
        return largest + self.spread

    @property
    def spread(self) -> Array:
        """Radii about the vertices, (11 n,)."""
        radius: Array = self.radius.copy()
        radius[self.last] += self.payloads.radius
        return radius


def inertial_uncertainties(robot: RobotModel, model: ControlModel) -> list[InertialUncertainty]:
    """List enclosures of the true inertial parameters; each of them is valid."""
    last = robot.inertial_slice(robot.n)
    body = model.theta_box.select(last)
    return [InertialUncertainty.of(robot, model, payloads) for payloads in candidate_sets(model, body)]


def inertial(robot: RobotModel, theta: Array) -> Array:
    """Select the parameters the inertia depends on, (11 n,), of parameters (14 n,)."""
    return np.concatenate([theta[: INERTIAL * robot.n], robot.friction(theta)[:, 2]])


@dataclass(frozen=True)
class InertiaRatio:
    """Range of the generalised eigenvalues of (H, M) over samples of a motion.

    Attributes:
        lower: Smallest one at any sample.
        upper: Largest one at any sample.
        lower_slope: Largest slope of ``lower`` with each joint, (n,) [1/rad].
        upper_slope: Largest slope of ``upper``, (n,) [1/rad].
    """

    lower: float
    upper: float
    lower_slope: Array
    upper_slope: Array

    def near(self, position: Array) -> tuple[float, float]:
        """Extend the range to positions within ``position`` (n,) [rad] of the samples."""
        return self.lower - float(self.lower_slope @ position), self.upper + float(self.upper_slope @ position)


def compute_inertia_ratio(robot: RobotModel, uncertainty: InertialUncertainty, q: Array, probes: Array) -> InertiaRatio:
    """Bound the ratio at positions (S, n); its slopes are differences.

    Args:
        robot: The arm.
        uncertainty: Deviation of the true inertial parameters from the nominal ones.
        q: Positions, (S, n) [rad].
        probes: Indices of the positions at which slopes are taken, (P,).
    """
    n = robot.n
    pencils = _Pencils.of(robot, uncertainty, q)
    ratios = pencils.ratios(uncertainty.payloads)
    steps = _STEP * np.concatenate([np.eye(n), -np.eye(n)])
    near = (q[probes, None] + steps).reshape(-1, n)
    few = replace(uncertainty, payloads=pencils.that_count(uncertainty.payloads, probes))
    slopes = []
    for at, beside in zip(ratios, inertia_ratios(robot, few, near), strict=True):
        changes = beside.reshape(-1, 2, n) - at[probes, None, None]
        slopes.append(np.abs(changes).max(axis=(0, 1)) / _STEP)
    return InertiaRatio(float(ratios[0].min()), float(ratios[1].max()), *slopes)


def inertia_ratios(robot: RobotModel, uncertainty: InertialUncertainty, q: Array) -> tuple[Array, Array]:
    """Bound the ratio at positions (S, n): smallest and largest, (S,) each.

    Raises:
        ParameterOutOfRange: The arm with a nominal payload has no positive definite inertia matrix.
    """
    return _Pencils.of(robot, uncertainty, q).ratios(uncertainty.payloads)


def extreme_inertias(
    robot: RobotModel, uncertainty: InertialUncertainty, q: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Bound the inertia from below and from above at positions (S, n), in coordinates in which the nominal one is 1.

    Returns:
        Twice K inertias, (S, K, n, n), and the payloads they are with, (K, 10): at all positions the true inertia is at
        least, or at most, a convex combination of these. They are those with the narrowest range of eigenvalues.
    """
    pencils, payloads = _Pencils.of(robot, uncertainty, q), uncertainty.payloads
    none = np.zeros((1, INERTIAL))  # a payload has no negative kinetic energy

    def best(arms: list[Array], sets: list[Array], sign: float) -> tuple[Array, Array]:
        options = [(a[:, None] + pencils._carrying(bodies), bodies) for a in arms for bodies in sets]
        if len(options) == 1:
            return options[0]
        # The first of equal ones: it has the fewest payloads.
        return min(options, key=lambda one: round(float(largest_of_several(sign * one[0]).max()), 9))

    return best(pencils.least, [none, payloads.lower], -1.0), best(pencils.most, list(payloads.upper), 1.0)


@dataclass(frozen=True)
class _Pencils:
    """Inertias at S positions, in coordinates in which the nominal one is the unit matrix."""

    least: list[Array]  # Bounds of the arm's from below, in the order of kinetic energies, (S, n, n) each
    most: list[Array]  # Bounds of it from above
    last: Array  # Inertia by parameter of the last body, (S, 10, n, n)

    @classmethod
    def of(cls, robot: RobotModel, uncertainty: InertialUncertainty, q: Array) -> _Pencils:
        columns = inertia_columns(robot, q)
        nominal = columns @ uncertainty.nominal
        try:
            # M = U U^T from the last row on, as in the kernel.
            factor = np.linalg.inv(np.linalg.cholesky(nominal[:, ::-1, ::-1]))[:, ::-1, ::-1].copy()
        except np.linalg.LinAlgError:
            allowed = "a payload with which the inertia matrix of the arm is positive definite"
            raise ParameterOutOfRange("nominal payload", uncertainty.payload.round(6).tolist(), allowed) from None
        radius, positive = uncertainty.radius, np.resize(_IS_POSITIVE, uncertainty.radius.size)
        positive[INERTIAL * robot.n :] = True  # armatures
        others = np.flatnonzero(~positive & (radius > 0.0))
        spread = _spread(congruence(factor, np.moveaxis(columns[..., others], -1, 1)), radius[others])
        spread += congruence(factor, columns @ np.where(positive, radius, 0.0))
        arm = congruence(factor, columns @ uncertainty.arm)
        least, most = [arm - spread], [arm + spread]
        if uncertainty.energies is not None:
            least.append(congruence(factor, columns @ uncertainty.energies[0]))
            most.append(congruence(factor, columns @ uncertainty.energies[1]))
        return cls(least, most, congruence(factor, np.moveaxis(columns[..., uncertainty.last], -1, 1)))

    def ratios(self, payloads: PayloadSet) -> tuple[Array, Array]:
        """Bound the smallest and the largest eigenvalue with any payload of a set, (S,) each."""
        lightest = self._carrying(payloads.lower)
        lowest = [-largest_of_several(-a[:, None] - lightest) for a in self.least]
        without = [-largest_eigenvalue(-a) for a in self.least]  # a payload has no negative kinetic energy
        heaviest = [self._carrying(one) for one in payloads.upper]
        highest = [largest_of_several(a[:, None] + one) for one in heaviest for a in self.most]
        return np.max([*lowest, *without], axis=0) - _ROUNDING, np.min(highest, axis=0) + _ROUNDING

    def that_count(self, payloads: PayloadSet, probes: Array) -> PayloadSet:
        """Leave out the vertices which are far from deciding at any of some positions, (P,)."""
        lightest = self._carrying(payloads.lower, probes)
        low = np.stack([-largest_eigenvalue(-a[probes, None] - lightest) for a in self.least])  # (A, P, K)
        heaviest = [self._carrying(one, probes) for one in payloads.upper]
        high = np.stack([largest_eigenvalue(a[probes, None] + one) for one in heaviest for a in self.most])
        near = low <= low.min(axis=2, keepdims=True) + _FAR, high >= (1.0 - _FAR) * high.max(axis=2, keepdims=True)
        below, above = (one.any(axis=(0, 1)) for one in near)
        return replace(payloads, lower=payloads.lower[below], upper=payloads.upper[:, above])

    def _carrying(self, bodies: Array, at: Array | slice = slice(None)) -> Array:
        """Compute the inertia of bodies (K, 10) at some of the positions, (S, K, n, n)."""
        result: Array = np.tensordot(self.last[at], bodies, (1, 1)).transpose(0, 3, 1, 2)
        return result


def _spread(matrices: Array, radius: Array) -> Array:
    """Bound ``sum_l d_l X_l`` for ``|d_l| <= radius_l`` by a matrix, (S, n, n), of symmetric X (S, l, n, n).

    For the parameters with the largest effect that is ``radius_l |X_l|``, for the others ``radius_l (tr X_l^2)^1/2 1``.
    """
    size = np.linalg.norm(matrices, axis=(-2, -1))
    first, rest = np.split(np.argsort(-(radius * size).max(axis=0)), [_MOST_IMPORTANT])
    leading = np.tensordot(magnitude(matrices[:, first]), radius[first], (1, 0))
    bound: Array = leading + (size[:, rest] @ radius[rest])[:, None, None] * np.eye(matrices.shape[-1])
    return bound
