"""The tube map: bounds of the tracking errors over a motion, given that the errors stay in a tube (steps 5 and 6).

Each output y (position, velocity or feedback) of joint j at any time is at most

    sum over all inputs of  center kernel convolved with |input_j|
                            + sqrt((M^-1)_jj) deviation kernel convolved with |input|,

with the kernels of :mod:`loop_response`: the centre of the responses acts joint by joint, and only the deviation of the
true inertia from it couples the joints. A tube that the map takes into itself is invariant. The proof is in
docs/theory/tracking_bound.md, "Theorem" and "Torque".
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound.between import (
    ChainJets,
    ChainRates,
    ModelRates,
    MotionRates,
)
from sysid_ros.core.tracking_bound.convolution import bound_change_convolution, bound_convolution
from sysid_ros.core.tracking_bound.disturbance import (
    ControlledArm,
    ResidualDisturbance,
    Signal,
    bound_friction,
    bound_torques,
    compute_residual,
    compute_smooth_disturbance,
    largest_norm,
    speed_range,
)
from sysid_ros.core.tracking_bound.inertia_columns import largest_eigenvalue
from sysid_ros.core.tracking_bound.loop_response import Kernel, LoopKernels, loop_kernels
from sysid_ros.core.tracking_bound.model_terms import (
    ModelTerms,
    MotionSlopes,
    TermStates,
    compute_model_terms,
    compute_motion_slopes,
)
from sysid_ros.core.tracking_bound.motion import MotionSamples, coarse_nodes, larger_neighbour
from sysid_ros.core.tracking_bound.scalar_loop import (
    ACCELERATION,
    FEEDBACK,
    POSITION,
    VELOCITY,
    BoundNotAvailable,
    bound_integral,
    horizon,
)
from sysid_ros.core.tracking_bound.term_nodes import (
    choose_term_nodes,
    fastest_oscillation,
    largest_between,
    nodes_to_add,
)
from sysid_ros.core.tracking_bound.uncertainty import (
    InertialUncertainty,
    InertiaRatio,
    compute_inertia_ratio,
    inertia_ratios,
    inertial_uncertainties,
)

Array = NDArray[np.float64]
_Terms = TypeVar("_Terms", TermStates, ModelTerms)

_STRIDE = 2
"""The smooth model error is evaluated at every so many nodes, of short and of fast motions at all."""
_LEAST_INTERVALS = 125
"""Motions, with the time after them, in which that leaves fewer intervals are short ones."""
_PHASE = 0.5
"""Largest phase of the fastest oscillation between every other node [rad]; otherwise the model error needs all."""
_REFINEMENTS = 2
"""Times that nodes are added to the slowly varying terms."""
_PROBES = 3
"""Number of these nodes at which the slope of the inertia ratio by position is evaluated."""
_MOSTLY = 0.5
"""Share of a joint's inertia from which an armature that is not known is named as the reason."""
SETTLED = 0.02
"""Share of the bound that may be left of a transient that counts as settled; the bound is enlarged by it."""
_NORMS = tuple(x.name for x in fields(ModelTerms) if x.name not in ("inertia", "torque_gradient"))
SLOW_TERMS = (
    "torque_slope",
    "inertia_slope",
    "inertia_rate",
    "ratio_slope",
    "ratio_rate",
    "coriolis_rate",
    "coriolis_slope",
)
SAMPLING = 1.03
"""Factor on the slowly varying terms, as estimated between their nodes along the motion; measured."""
TURNING = 0.7
"""Relative change of these terms with the sum of the position errors [1/rad]; measured."""


@dataclass(frozen=True)
class Tube:
    """Bounds of the errors in I intervals of a motion, for each joint and in the norm of the nominal inertia.

    Attributes:
        position: ``|q_d - q|``, (I, n) [rad].
        velocity: ``|v_d - v|``, (I, n) [rad/s].
        position_norm: Norm of ``q_d - q``, (I,).
        velocity_norm: Norm of ``v_d - v``, (I,).
        acceleration_norm: Norm of ``a_d - a``, (I,).
        feedback_norm: Norm of the feedback less the smooth disturbance it balances, (I,).
    """

    position: Array
    velocity: Array
    position_norm: Array
    velocity_norm: Array
    acceleration_norm: Array
    feedback_norm: Array

    @classmethod
    def empty(cls, intervals: int, n: int) -> Tube:
        """Return the tube without errors, where the search begins."""
        return cls(*(np.zeros((intervals, n)) for _ in range(2)), *(np.zeros(intervals) for _ in range(4)))

    def after(self, past: Tube | None) -> Tube:
        """Replace the beginning by the tube proven for the predecessor, if there is one."""
        if past is None:
            return self
        count = len(past.position_norm)
        pairs = ((getattr(past, x.name), getattr(self, x.name)[count:]) for x in fields(self))
        return Tube(*(np.concatenate(pair) for pair in pairs))

    def between(self, begin: int, end: int) -> Tube:
        """Return the tube in these intervals."""
        return Tube(*(getattr(self, x.name)[begin:end] for x in fields(self)))

    def contains(self, other: Tube) -> bool:
        """Test whether another tube lies inside."""
        return all(np.all(getattr(other, x.name) <= getattr(self, x.name)) for x in fields(self))

    @property
    def size(self) -> float:
        """Mean bound of the velocity norm, the measure of size in the search."""
        return float(self.velocity_norm.mean())

    def stepped(self, other: Tube, length: float) -> Tube:
        """Move every bound ``length`` times the way to the other tube's where that is larger."""
        pairs = ((getattr(self, x.name), getattr(other, x.name)) for x in fields(self))
        return Tube(*(a + length * np.maximum(b - a, 0.0) for a, b in pairs))

    def scaled(self, factor: float) -> Tube:
        """Return the tube ``factor`` times as wide."""
        return Tube(*(factor * getattr(self, x.name) for x in fields(self)))


@dataclass(frozen=True)
class LoopInputs:
    """Kernels and inputs of the loop while the errors stay in a tube.

    Attributes:
        shift: Relative change of M between desired and true position [-].
        ratios: Smallest and largest eigenvalue of E.
        ratio_rate: Bounds of the rate of E, (I,) [1/s]; for stops, this and the next ones begin with the intervals
            before them.
        kernels: Kernels of the sampled closed-loop responses.
        friction_torque: Bounds of the friction torque that is not compensated, (I, n) [Nm].
        friction: Bounds of the disturbance it makes [rad/s^2].
        residual: Bounds of the norm of the rest of the residual disturbance, (I,).
        joint_per_norm: Largest acceleration of each joint per unit of norm, (I, n).
    """

    shift: float
    ratios: tuple[float, float]
    ratio_rate: Array
    kernels: LoopKernels
    friction_torque: Array
    friction: Signal
    residual: Array
    joint_per_norm: Array

    @property
    def growth(self) -> float:
        """Factor from norms relative to M at the desired position to norms relative to M at the true one."""
        return float(np.sqrt(1.0 + self.shift))


@dataclass(frozen=True)
class ErrorBounds:
    """Bounds of the four outputs of the loop while the errors stay in a tube.

    Attributes:
        inputs: Their inputs.
        causes: Bounds for each joint, by cause, (I, n, 4) each.
        norms: Bounds of the norms, (I, 4).
    """

    inputs: LoopInputs
    causes: dict[str, Array]
    norms: Array


@dataclass(frozen=True)
class TermNodes:
    """Nodes of a motion at which slowly varying terms are evaluated, S of them, and the S - 1 intervals between.

    Attributes:
        states: Desired states at the nodes.
        largest: The largest terms in each interval, estimated from the nodes; the inertia is bounded.
        inverses: Matrices of which a convex combination bounds the inverse inertia in the interval, (2, S - 1, n, n).
        rates: Largest rates of the motion in the intervals.
        jumps: Jumps of the acceleration there over the age of held values, (S - 1, n) [rad/s^3].
        times: Times of the nodes, (S,) [s].
    """

    states: TermStates
    largest: ModelTerms
    inverses: Array
    rates: MotionRates
    jumps: Array
    times: Array

    def residual(self, arm: ControlledArm, terms: ModelTerms, rates: MotionRates) -> ResidualDisturbance:
        """Bound the residual disturbance in the intervals.

        Args:
            arm: The arm, under its controller.
            terms: Terms in the intervals; the slope of the model without friction and armature.
            rates: Largest rates of the motion there; the jerk of held values.
        """
        passive = _passive_norm(arm.robot, arm.model, rates, self.inverses)
        terms = replace(terms, model_slope=terms.model_slope + terms.inertia_slope * passive)
        return compute_residual(arm, terms, self.inverses, rates)


class LoopBounds:
    """The common part of the bounds of a motion and of its stops.

    Arrays begin with the intervals: (I,) of a motion, (P, K) of its stops, as in their tubes.

    Attributes:
        robot: The arm.
        model: Nominal parameters and boxes.
        settings: Gains and timing.
        slow_terms: Slowly varying terms of :class:`ModelTerms` in all intervals as estimated, (I,) each.
        smooth_norm: Bounds of the norm of the smooth disturbance, (I,).
        largest_smooth_norm: The largest of them since the horizon of the kernels began.
        missed: Bounds of the difference of model error and smooth disturbance, (I, n) [Nm].
        inertia_diagonal: Largest entries of the diagonal of the nominal inertia, (I, n).
        magnitude: Largest magnitudes of its entries, (I, n, n).
        sensor_errors: Largest errors of the measured velocity [rad/s] and position [rad], (n,) each.
        error_norms: Largest norms of these, (I,) each.
        turned: Bounds of the norm by which the torque's gradient differs from that at nodes, (I,), for errors for which
            the terms are proven; None where they are estimated, and have an allowance.
    """

    robot: RobotModel
    model: ControlModel
    settings: RobustSettings
    slow_terms: dict[str, Array]
    smooth_norm: Array
    largest_smooth_norm: float
    missed: Array
    inertia_diagonal: Array
    magnitude: Array
    sensor_errors: tuple[Array, Array]
    error_norms: list[Array]
    turned: Array | None = None

    def convolve(self, kernel: Array, signal: Array) -> Array:
        """Bound the convolution of a kernel (B,) or of k of them (B, k) with a signal; see :mod:`convolution`."""
        raise NotImplementedError

    def convolve_change(self, kernels: tuple[Array, Array], rate: Array, signal: Array) -> Array:
        """Bound the same where the signal acts in proportion to the change since, by kernels and their ages."""
        raise NotImplementedError

    def with_past(self, values: Array, name: str) -> Array:
        """Return bounds of an error, :class:`Tube` names it, that kernels are applied to, earlier ones included."""
        raise NotImplementedError

    def largest(self, tube: Tube, name: str) -> float:
        """Return the largest bound of a norm, :class:`Tube` names it, since the horizon of the kernels began."""
        raise NotImplementedError

    def feedback_errors(self, tube: Tube) -> list[tuple[Array, Array]]:
        """Bound the measuring errors of velocity and position: each joint's, (n,), and their norms, (I,).

        Where the velocity is the difference of the last two positions, the kernels take that into account. There remain
        the difference between the desired velocity and its own mean over a period, and errors of the positions,
        increased by the jitter of their time stamps.
        """
        raise NotImplementedError

    def apply_gradient(self, errors: Array) -> Array:
        """Multiply position errors by the magnitudes of the gradient of the torque as estimated, (I, n) [Nm]."""
        raise NotImplementedError

    def turn_torque(self, tube: Tube) -> Array:
        """Bound the change of the nominal torque of the motion by position errors and those of encoders, (I, n) [Nm].

        An entry of the gradient that is 0 along the motion need not stay 0 in the tube, so the norm bounds its change
        there: by ``change_ij <= |change| sqrt(M_ii M_jj)``.
        """
        errors, size = tube.position + self.sensor_errors[1], np.sqrt(self.inertia_diagonal)
        change = self.turned
        if change is None:
            change = (self.allowance(tube) - 1.0) * self.slow_terms["torque_slope"]
        changed: Array = (change * np.einsum("...i,...i->...", size, errors))[..., None] * size
        return self.apply_gradient(errors) + changed

    def allowance(self, tube: Tube) -> Array:
        """Return the factor on the slowly varying terms for their growth in a tube, (I,); 1 where they are proven."""
        if self.turned is not None:
            return np.ones(tube.position.shape[:-1])
        factor: Array = SAMPLING + TURNING * tube.position.sum(axis=-1)
        return factor

    def terms_in(self, tube: Tube) -> dict[str, Array]:
        """Return the slowly varying terms in a tube, (I,) each."""
        factor = self.allowance(tube)
        return {name: factor * values for name, values in self.slow_terms.items()}

    def image(self, tube: Tube, bounds: ErrorBounds) -> Tube:
        """Return the tube that ``tube`` is mapped to, given its bounds."""
        half = 0.5 * self.settings.period  # the controller's samples are a period apart
        norms, reach = bounds.norms, bounds.inputs.joint_per_norm
        joints = np.minimum(sum(bounds.causes.values()), reach[..., None] * norms[..., None, :])
        return Tube(
            position=joints[..., POSITION] + half * tube.velocity,
            velocity=joints[..., VELOCITY] + half * reach * tube.acceleration_norm[..., None],
            position_norm=norms[..., POSITION] + half * tube.velocity_norm,
            velocity_norm=norms[..., VELOCITY] + half * tube.acceleration_norm,
            acceleration_norm=norms[..., ACCELERATION],
            feedback_norm=norms[..., FEEDBACK],
        )

    def inertia_shift(self, tube: Tube) -> Array:
        """Bound the relative change of M between desired and true position, (I,) [-]."""
        return self.allowance(tube) * self.slow_terms["inertia_slope"] * tube.position_norm

    def bound_torque(self, tube: Tube, bounds: ErrorBounds) -> Array:
        """Bound the commanded torque less the torque the true arm needs for the desired motion, (I, n) [Nm]: step 6.

        It is ``M (f - a_w)``, plus the nominal torque at the measured state less that at the desired one.
        """
        bound: Array = sum(self.torque_by_cause(tube, bounds).values(), np.zeros(1))
        return bound

    def torque_by_cause(self, tube: Tube, bounds: ErrorBounds) -> dict[str, Array]:
        """Return the parts of :meth:`bound_torque`, (I, n) each [Nm].

        ``friction`` and ``sensors`` act on a joint in the middle of the range of inertias, ``model`` is the effect of
        the rate of the model error there, and ``coupling`` the effect of all three through the uncertain inertia.
        ``errors themselves`` is the rest: as disturbances, and by the change of the model at the true position.
        """
        slow, inputs = self.terms_in(tube), bounds.inputs
        # M is the present one; earlier inputs act through the norms, with the largest change.
        shift = self.inertia_shift(tube)
        torque_per_norm = np.sqrt((1.0 + shift)[..., None] * self.inertia_diagonal)
        causes = {name: values[..., FEEDBACK] for name, values in bounds.causes.items()}
        # Through the centre kernel friction acts on its own joint, but for the change of the inertia since it acted.
        center = inputs.kernels.residual.center[:, FEEDBACK]
        friction = self.convolve(center, inputs.friction_torque)
        changed = (inputs.kernels.inertia_drift + center.sum() * inputs.shift) * inputs.friction.norm.max()
        parts = {
            "friction": friction,
            "sensors": self.apply_inertia(shift, causes["sensors"]),
            "model": self.apply_inertia(shift, causes["model"]),
            "coupling": torque_per_norm * causes["coupling"] / inputs.joint_per_norm,
            "errors themselves": torque_per_norm * (causes["errors themselves"] / inputs.joint_per_norm + changed),
        }
        # Where the bound of the norm is smaller, all parts are that much smaller.
        by_cause, by_norm = sum(parts.values(), np.zeros(1)), torque_per_norm * bounds.norms[..., FEEDBACK, None]
        share = np.minimum(1.0, by_norm / np.maximum(by_cause, 1e-300))
        parts = {name: share * values for name, values in parts.items()}
        coriolis, coriolis_slope = slow["coriolis_rate"], slow["coriolis_slope"]
        position, velocity = tube.position_norm + self.error_norms[1], tube.velocity_norm + self.error_norms[0]
        model = shift * self.smooth_norm / (1.0 - shift)
        model = model + coriolis * velocity
        model = model + self.settings.position_gain * (coriolis + coriolis_slope * velocity) * position
        viscous = np.abs(self.model.friction[:, 1]) * (tube.velocity + self.sensor_errors[0])
        turned = self.turn_torque(tube)
        parts["errors themselves"] = parts["errors themselves"] + torque_per_norm * model[..., None] + viscous + turned
        parts["model"] = parts["model"] + self.missed
        return parts

    def apply_inertia(self, shift: Array, accelerations: Array) -> Array:
        """Bound ``M(q) a`` for all accelerations at most these, (I, n) [Nm], M changed by at most ``shift``, (I,).

        ``|y^T (M(q) - M(q_d)) z| <= shift |y| |z|`` in the norm of ``M(q_d)``, and with unit vectors for y and z
        ``|M(q)_ij| <= |M(q_d)_ij| + shift sqrt(M(q_d)_ii M(q_d)_jj)``: an entry that is 0 at q_d need not stay 0.
        """
        size = np.sqrt(self.inertia_diagonal)
        changed = size * (shift * np.einsum("...i,...i->...", size, accelerations))[..., None]
        bound: Array = np.einsum("...ij,...j->...i", self.magnitude, accelerations) + changed
        return bound

    def bound_self_induced(self, tube: Tube, inputs: LoopInputs) -> Array:
        """Bound the norms of the effect of the errors themselves, (I, 4): as disturbances, and as E changes."""
        kernels, rate = inputs.kernels, inputs.ratio_rate
        speed, acceleration = (self.with_past(getattr(tube, x), x) for x in ("velocity_norm", "acceleration_norm"))
        total = self.convolve(kernels.residual.largest, inputs.residual)
        total += self.convolve_change((kernels.variation, kernels.variation_age), rate, speed)
        total += self.convolve_change((kernels.sampling_jumps, kernels.sampling_jumps_age), rate, acceleration)
        total += self.convolve(kernels.sampling_jumps, rate * speed)
        now = rate[..., -tube.velocity_norm.shape[-1] :]
        total[..., ACCELERATION] += now * tube.velocity_norm / inputs.ratios[0]
        return total + self._left_over(tube, inputs)

    def _left_over(self, tube: Tube, inputs: LoopInputs) -> Array:
        """Bound the norms of the remainder of the loop's state at the beginning of the horizon, (4,)."""
        velocity_error, position_error = (float(norm.max()) for _, norm in self.feedback_errors(tube))
        if self.robot.sensors.velocity_is_difference:
            velocity_error += 2.0 / self.settings.period * position_error
        position = self.largest(tube, "position_norm") + position_error
        velocity = self.largest(tube, "velocity_norm") + velocity_error
        feedback = self.largest_smooth_norm + self.largest(tube, "feedback_norm")
        integral = bound_integral(self.settings, feedback, position, velocity)
        states = (position, velocity, integral, feedback, self.largest_smooth_norm)
        return inputs.growth * inputs.kernels.left_over(*states)


class TubeMap(LoopBounds):
    """The map from a tube to the bounds it implies; tube-independent parts are computed once.

    Args:
        robot: The arm.
        model: Nominal parameters and boxes.
        samples: The motion, after the predecessor's.
        settings: Gains and timing.
        past_tube: Tube proven for the predecessor.

    Attributes:
        uncertainty: Deviation of the true inertial parameters from the nominal ones.
        fine: Nodes of the smooth disturbance.
        inertia_change: Change of the nominal inertia between these.
        smooth: Bounds of the smooth disturbance there.
    """

    def __init__(
        self,
        robot: RobotModel,
        model: ControlModel,
        samples: MotionSamples,
        settings: RobustSettings,
        past_tube: Tube | None = None,
    ):
        self.robot, self.model, self.samples, self.settings, self.past_tube = robot, model, samples, settings, past_tube
        is_long = len(samples.q) - 1 - samples.past >= _STRIDE * _LEAST_INTERVALS
        stride = _STRIDE if is_long and _STRIDE * samples.step * fastest_oscillation(samples) <= _PHASE else 1
        nodes = self.fine = coarse_nodes(len(samples.q) - 1, stride)
        coarse = samples.every(stride)
        changes = coarse.rates, coarse.jumps, samples.step * np.diff(nodes)
        self._jets = ChainJets(robot, (coarse.q, coarse.v, coarse.a), *changes)
        chosen = choose_term_nodes(samples, nodes)
        q = samples.q[chosen]
        self.uncertainty, self.ratio = _narrowest(robot, model, q)
        arm = self.arm = ControlledArm(robot, model, settings)
        regressor = self.regressor = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE)

        self._cells = np.repeat(np.arange(len(nodes) - 1), np.diff(nodes))
        self.inertia = ArmDynamics(robot, model.total, armature=True).inertia(coarse.q)
        self.inverse = np.asarray(np.linalg.inv(self.inertia), dtype=np.float64)
        between = self.rates_between(nodes)
        self.smooth = compute_smooth_disturbance(arm, regressor, self.uncertainty, coarse, (self.inertia, between))

        chosen, states, terms = self._evaluate_terms(chosen)
        self.half_spacing = 0.5 * np.abs(np.diff(q, axis=0)).max(axis=0)  # to the nearest of these nodes, (n,) [rad]
        self.inertia_change = between.inertia_change(self.inertia, self.inverse)
        self._nearby = self.inertia_change.nearby
        self.missed = self._refined(self.smooth.missed)
        self.inertia_diagonal, self._inverse_diagonal = (
            self._refined(self._nearby[:, None] * larger_neighbour(np.diagonal(x, axis1=1, axis2=2)))
            for x in (self.inertia, self.inverse)
        )
        size = np.sqrt(self.inertia_diagonal)
        off = self._refined(self._nearby - 1.0)[:, None, None] * size[:, :, None] * size[:, None]
        self.magnitude = self._refined(larger_neighbour(np.abs(self.inertia))) + off

        speeds = samples.rates_over(chosen)
        times = samples.step * chosen.astype(np.float64)
        found = {x.name: largest_between(times, np.abs(getattr(terms, x.name))) for x in fields(ModelTerms)}
        largest = ModelTerms(**found | {"inertia": np.maximum.reduceat(self.magnitude, chosen[:-1], axis=0)})
        # Held values jump where the acceleration does.
        jumps = np.add.reduceat(samples.jumps, chosen[:-1], axis=0) / (settings.period + settings.delay)
        inverses = self._bound_inverses(terms.inertia, np.searchsorted(nodes, chosen))
        self.terms = TermNodes(states, largest, inverses, speeds, jumps, times)
        self.spread = np.repeat(np.arange(len(chosen) - 1), np.diff(chosen))
        self._use_terms()

        polygon = self._refined(np.sqrt(self._nearby) * larger_neighbour(self.smooth.size.norm))
        missed = self._bound_torques(self.missed)
        self.smooth_norm: Array = polygon + missed.norm
        self.largest_smooth_norm = float(self.smooth_norm.max())
        rate = self.smooth.rate
        self.rate = Signal(rate.entries[self._cells], (np.sqrt(self._nearby) * rate.norm)[self._cells])
        self.speeds = speed_range(
            samples.v, samples.step**2 / 8.0 * samples.curvature_over(np.arange(self.intervals + 1)).jerk
        )
        self.sensor_errors = (robot.sensors.velocity_error, 0.5 * robot.sensors.position_resolution)
        self.error_norms = [self._norm_of(error) for error in self.sensor_errors]

    def _use_terms(self) -> None:
        """Spread the terms, and the residual disturbance they make, over all intervals."""
        terms, speeds, largest = self.terms, self.terms.rates, self.terms.largest
        residual = terms.residual(self.arm, largest, replace(speeds, jerk=speeds.jerk + terms.jumps))
        self._residual = ResidualDisturbance(
            *(getattr(residual, x.name)[self.spread] for x in fields(ResidualDisturbance))
        )
        self.slow_terms = {name: getattr(largest, name)[self.spread] for name in SLOW_TERMS}
        self.torque_gradient = largest.torque_gradient.max(axis=0)

    def still_terms(self) -> dict[str, Array]:
        """Estimate the largest slopes of the torque at rest between the nodes of the slowly varying terms, by name."""
        terms = self.terms
        rest = replace(terms.states, v=np.zeros_like(terms.states.v), a=np.zeros_like(terms.states.a))
        slopes = compute_motion_slopes(self.robot, self.uncertainty, rest, terms.states.v)
        return {x.name: largest_between(terms.times, np.abs(getattr(slopes, x.name))) for x in fields(MotionSlopes)}

    def ratios_near(self, errors: Array, allowance: float) -> tuple[float, float]:
        """Bound the eigenvalues of E in position errors of at most (n,) [rad]."""
        return self.ratio.near(allowance * (errors + self.half_spacing))

    def _evaluate_terms(self, chosen: NDArray[np.intp]) -> tuple[NDArray[np.intp], TermStates, ModelTerms]:
        """Evaluate the slowly varying terms at chosen nodes, and at more of them where the terms bend."""

        def evaluate(nodes: NDArray[np.intp]) -> tuple[TermStates, ModelTerms]:
            states = TermStates(*(x[nodes] for x in (self.samples.q, self.samples.v, self.samples.a)))
            return states, compute_model_terms(self.robot, self.uncertainty, states)

        states, terms = evaluate(chosen)
        for _ in range(_REFINEMENTS):
            added = nodes_to_add(self.samples, self.fine, chosen, (getattr(terms, name) for name in _NORMS))
            if not added.size:
                break
            order = np.argsort(np.concatenate([chosen, added]))
            chosen = np.concatenate([chosen, added])[order]
            more = evaluate(added)
            states, terms = _merged(states, more[0], order), _merged(terms, more[1], order)
        return chosen, states, terms

    def _bound_inverses(self, ends: Array, at: NDArray[np.intp]) -> Array:
        """Bound the inverse inertia between the nodes ``at`` by those at both ends, (2, S - 1, n, n).

        The inverse of a mixture of matrices is at most the same mixture of their inverses, so where a mixture of both
        ends, (S, n, n) [kg m^2], is at most w M, the inverse of M is at most w times that mixture of the inverses.
        """
        piece = np.repeat(np.arange(len(at) - 1), np.diff(at))
        share = ((np.arange(at[-1]) - at[piece]) / np.diff(at)[piece])[:, None, None]
        factor = np.linalg.inv(np.linalg.cholesky(self.inertia[:-1]))
        mixed = (1.0 - share) * ends[piece] + share * ends[piece + 1]
        above = largest_eigenvalue(factor @ mixed @ np.swapaxes(factor, 1, 2))
        factors = [np.maximum.reduceat(one, at[:-1]) for one in (np.maximum(above, 1.0), self._nearby)]
        inverse = np.asarray(np.linalg.inv(ends), dtype=np.float64)
        bound: Array = (factors[0] * factors[1])[:, None, None] * np.stack([inverse[:-1], inverse[1:]])
        return bound

    def rates_between(self, nodes: NDArray[np.intp]) -> ModelRates:
        """Bound the second derivatives of the model between chosen nodes."""
        samples = self.samples
        rates, width = samples.curvature_over(nodes), samples.step * np.diff(nodes)
        plain = samples.rates_over(nodes)
        added = replace(plain, jerk=rates.jerk - plain.jerk, snap=rates.snap - plain.snap)
        chain = ChainRates(self._jets, np.searchsorted(self.fine, nodes[:-1]), added)
        return ModelRates(self.robot, self.uncertainty, chain, rates, width)

    @property
    def intervals(self) -> int:
        """Number of intervals."""
        return len(self.samples.q) - 1

    def empty_tube(self) -> Tube:
        """Return the tube the search begins with."""
        return Tube.empty(self.intervals, self.robot.n).after(self.past_tube)

    def evaluate(self, tube: Tube) -> ErrorBounds:
        """Bound the errors given that they stay in ``tube``: step 5.

        Raises:
            BoundNotAvailable: The loop may be unstable.
        """
        inputs = self._inputs(tube)
        own = self.bound_self_induced(tube, inputs)
        kernels, grown = inputs.kernels, inputs.growth
        coupled, norms = (
            residual + grown * slow
            for residual, slow in zip(
                _bound_coupling(kernels.residual, inputs.friction.norm),
                _bound_coupling(kernels.smooth, self.rate.norm),
                strict=True,
            )
        )
        norms += own
        model = bound_convolution(kernels.smooth.center, self.rate.entries)
        sensors = np.zeros((self.intervals, self.robot.n, 4))
        sensor_kernels = (kernels.velocity_error, kernels.position_error)
        for (error, norm), kernel in zip(self.feedback_errors(tube), sensor_kernels, strict=True):
            sensors += np.broadcast_to(error, self.robot.n)[:, None] * kernel.center
            coupled += grown * norm[:, None] * kernel.deviation
            norms += grown * norm[:, None] * kernel.largest
        causes = {
            "friction": bound_convolution(kernels.residual.center, inputs.friction.entries),
            "model": model,
            "sensors": sensors,
            "coupling": inputs.joint_per_norm[..., None] * coupled[:, None],
            "errors themselves": inputs.joint_per_norm[..., None] * own[:, None],
        }
        return ErrorBounds(inputs, causes, norms)

    def image(self, tube: Tube, bounds: ErrorBounds) -> Tube:
        """Return the tube that ``tube`` is mapped to, given its bounds; the predecessor's part stays as proven."""
        return super().image(tube, bounds).after(self.past_tube)

    def convolve(self, kernel: Array, signal: Array) -> Array:
        """Bound the convolution of kernels with a signal (I, ...), which before the motion is as in the beginning."""
        return bound_convolution(kernel, signal)

    def convolve_change(self, kernels: tuple[Array, Array], rate: Array, signal: Array) -> Array:
        """Bound the same where the signal acts in proportion to the change since, by kernels and their ages."""
        return bound_change_convolution(*kernels, rate, signal, self.samples.step)

    def with_past(self, values: Array, name: str) -> Array:
        """Return the bounds of an error unchanged: they include the predecessor's."""
        return values

    def largest(self, tube: Tube, name: str) -> float:
        """Return the largest bound of a norm: the tube begins with the horizon."""
        return float(getattr(tube, name).max())

    def apply_gradient(self, errors: Array) -> Array:
        """Multiply errors by the largest magnitudes of the gradient in the motion, see :class:`LoopBounds`."""
        turned: Array = errors @ self.torque_gradient.T
        return turned

    def _inputs(self, tube: Tube) -> LoopInputs:
        slow, allowance = self.terms_in(tube), self.allowance(tube)
        shift = float(self.inertia_shift(tube).max())
        if not shift < 0.5:
            raise BoundNotAvailable(
                "the position errors may change the inertia by half: the parameter boxes are too wide, or the motion "
                "too fast, for these gains"
            )
        ratios = self.ratios_near(tube.position.max(axis=0), float(allowance.max()))
        if not ratios[0] > 0.0:
            raise BoundNotAvailable(
                f"the smallest possible inertia is not positive in every direction{self._least_known_armature()}; "
                "narrow the parameter boxes"
            )
        inertia_rate = (slow["inertia_rate"] + slow["inertia_slope"] * tube.velocity_norm) / (1.0 - shift)
        growth = self._norm_growth(0.5 * inertia_rate)
        kernels = loop_kernels(self.settings, ratios, *growth, self.robot.sensors.velocity_is_difference)
        torque = bound_friction(self.model, self.settings, self.speeds, tube.velocity) + self.missed
        friction = self._bound_torques(torque)
        shrunk = np.sqrt(1.0 - shift)
        joint_per_norm = np.sqrt(self._inverse_diagonal)
        entries = friction.entries + joint_per_norm * (shift / (1.0 - shift) * friction.norm)[:, None]
        feedback = np.sqrt(1.0 + shift) * self.smooth_norm + tube.feedback_norm
        errors = (tube.position_norm, tube.velocity_norm, tube.acceleration_norm)
        changing = slow["ratio_rate"] + slow["ratio_slope"] * tube.velocity_norm
        return LoopInputs(
            shift=shift,
            ratios=ratios,
            ratio_rate=changing / (1.0 - shift),
            kernels=kernels,
            friction_torque=torque,
            friction=Signal(entries, friction.norm / shrunk),
            residual=allowance * self._residual.evaluate(*errors, feedback) / (1.0 - shift),
            joint_per_norm=joint_per_norm / shrunk,
        )

    def _least_known_armature(self) -> str:
        """Name the joint whose inertia is mostly an uncertain armature; empty where there is none."""
        armature = self.robot.friction(self.model.theta_box.radius)[:, 2]
        share = armature / np.diagonal(self.inertia[0])
        joint = int(share.argmax())
        if share[joint] < _MOSTLY:
            return ""
        low, high = (
            self.robot.friction(end)[joint, 2] for end in (self.model.theta_box.lower, self.model.theta_box.upper)
        )
        name, inertia = self.robot.joint_names[joint], self.inertia[0, joint, joint]
        return (
            f" (of the nominal {inertia:.3g} kg m^2 about {name} most is the rotor behind the gear, which may be "
            f"{low:.3g} to {high:.3g})"
        )

    def _norm_growth(self, rate: Array) -> tuple[float, float]:
        """Return the largest of a rate (I,), and of its integral over the horizon of the kernels."""
        width = self.samples.step
        bins = int(np.ceil(horizon(self.settings) / width)) + 1
        before = np.concatenate([np.zeros(bins), np.cumsum(rate)])
        fastest = float(rate.max())
        # Before the first interval the rate is as in it.
        over = before[bins:] - before[:-bins] + rate[0] * np.maximum(bins - 1 - np.arange(len(rate)), 0)
        return fastest, width * float(over.max())

    def feedback_errors(self, tube: Tube) -> list[tuple[Array, Array]]:
        """Bound the measuring errors, see :class:`LoopBounds`."""
        sensors, samples = self.robot.sensors, self.samples
        if not sensors.velocity_is_difference:
            return list(zip(self.sensor_errors, self.error_norms, strict=True))
        lag = 0.5 * self.settings.period * (samples.rates.a + samples.jumps).max(axis=0)
        speed = samples.rates.v.max(axis=0) + tube.velocity.max(axis=0)
        position = 0.5 * sensors.position_resolution + sensors.stamp_jitter * speed
        return [(error, self._norm_of(error)) for error in (lag, position)]

    def _bound_torques(self, torque: Array) -> Signal:
        """Bound ``M^-1 h`` for all torques ``|h| <= torque``, (I, n)."""
        starts = np.flatnonzero(np.diff(self._cells, prepend=-1))
        largest = np.maximum.reduceat(torque, starts, axis=0)
        first, second = (bound_torques(inverse, largest) for inverse in (self.inverse[1:], self.inverse[:-1]))
        entries, norm = np.maximum(first.entries, second.entries), np.maximum(first.norm, second.norm)
        reach = np.sqrt(larger_neighbour(np.diagonal(self.inverse, axis1=1, axis2=2)))
        entries = entries + ((self._nearby - 1.0) * norm)[:, None] * reach
        return Signal(self._refined(entries), self._refined(np.sqrt(self._nearby) * norm))

    def _norm_of(self, error: Array) -> Array:
        """Bound the norm of every vector whose entries are at most these, (n,), in all intervals, (I,)."""
        norm = largest_norm(self.inertia, np.broadcast_to(error, self.inertia.shape[:2]))
        return self._refined(np.sqrt(self._nearby) * larger_neighbour(norm))

    def _refined(self, values: Array) -> Array:
        return values[self._cells]


def _bound_coupling(kernel: Kernel, norm: Array) -> Array:
    """Convolve a norm (I,) with the deviation and with the largest response, (2, I, 4)."""
    both = np.stack([kernel.deviation, kernel.largest], axis=1)
    result: Array = bound_convolution(both.reshape(len(both), -1), norm).reshape(-1, *both.shape[1:]).swapaxes(0, 1)
    return result


def _merged(first: _Terms, second: _Terms, order: NDArray[np.intp]) -> _Terms:
    names = [x.name for x in fields(first)]
    return replace(first, **{x: np.concatenate([getattr(first, x), getattr(second, x)])[order] for x in names})


def _passive_norm(robot: RobotModel, model: ControlModel, speeds: MotionRates, inverses: Array) -> Array:
    """Bound the norm of the error of friction and armature in intervals, with their inverses (2, P, n, n), (P,)."""
    rest = robot.friction(np.maximum(*(np.abs(bound) for bound in model.deviation)))
    passive = rest[:, 0] + rest[:, 1] * speeds.v + rest[:, 2] * speeds.a + rest[:, 3]
    both = [np.einsum("si,sij,sj->s", passive, np.abs(x), passive) for x in inverses]
    norm: Array = np.sqrt(np.maximum(*both))
    return norm


def _narrowest(robot: RobotModel, model: ControlModel, q: Array) -> tuple[InertialUncertainty, InertiaRatio]:
    """Select the valid enclosure of the uncertainty with the narrowest range of the inertia ratio, and that range."""
    probes = np.unique(np.linspace(0, len(q) - 1, _PROBES).round().astype(int))
    options = inertial_uncertainties(robot, model)

    def width(one: InertialUncertainty) -> float:
        lower, upper = inertia_ratios(robot, one, q[:1])
        return float(upper[0] / max(lower[0], 1e-9))

    best = min(options, key=width) if len(options) > 1 else options[0]
    return best, compute_inertia_ratio(robot, best, q, probes)
