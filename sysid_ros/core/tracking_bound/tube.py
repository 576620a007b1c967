"""Bounds of the tracking errors over a motion if they never leave a given tube.

Each output y (position, velocity or feedback) of joint j at any time is at most

    sum over inputs and over the past of  center kernel * |input_j|  +  sqrt((M^-1)_jj) deviation kernel * |input|,

with the kernels of :mod:`frozen_loop`: the middle of the responses there may be acts joint by joint, and only what the
true inertia changes about it may move energy from one joint to another. docs/control.md has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.model import ControlModel, PassiveDynamics, add_payload
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound.convolution import recall, recall_change
from sysid_ros.core.tracking_bound.disturbance import (
    Feedthrough,
    Signal,
    bound_friction,
    bound_torques,
    compute_feedthrough,
    compute_smooth,
)
from sysid_ros.core.tracking_bound.inertia_columns import inertia_columns
from sysid_ros.core.tracking_bound.inertia_ratio import InertiaRatio, compute_inertia_ratio, inertia_ratios
from sysid_ros.core.tracking_bound.loop_response import (
    ACCELERATION,
    FEEDBACK,
    POSITION,
    VELOCITY,
    BoundNotAvailable,
    Kernel,
    LoopKernels,
    loop_kernels,
    memory,
)
from sysid_ros.core.tracking_bound.model_terms import compute_model_terms
from sysid_ros.core.tracking_bound.motion import MotionSamples, larger_neighbour
from sysid_ros.core.tracking_bound.uncertainty import InertialUncertainty, inertial_uncertainties

Array = NDArray[np.float64]

_STRIDE = 2
"""Nodes between those at which the smooth model error is evaluated."""
_TERM_ANGLE = 0.3
_TERM_STEPS = (0.05, 0.25)
"""Slowly varying terms are evaluated this often [rad of the fastest oscillation], within these times [s]."""
_PROBES = 3
"""About how many of them serve to find how the inertia ratio changes with the position."""
_CORIOLIS = ("coriolis_rate", "coriolis_slope")
_SAMPLING = 1.05
"""Factor on all sampled quantities for what lies between the samples."""


@dataclass(frozen=True)
class Tube:
    """Bounds of the errors in I intervals of a motion, for each joint and in the norm of the nominal inertia.

    Attributes:
        position: Of ``|q_d - q|``, (I, n) [rad].
        velocity: Of ``|v_d - v|``, (I, n) [rad/s].
        position_norm: Of the norm of ``q_d - q``, (I,).
        velocity_norm: Of the norm of ``v_d - v``, (I,).
        acceleration_norm: Of the norm of ``a_d - a``, (I,).
        feedback_norm: Of the norm of the feedback beyond what it has to balance, (I,).
    """

    position: Array
    velocity: Array
    position_norm: Array
    velocity_norm: Array
    acceleration_norm: Array
    feedback_norm: Array

    @classmethod
    def empty(cls, intervals: int, n: int) -> Tube:
        """No errors at all, where the search for a tube begins."""
        return cls(*(np.zeros((intervals, n)) for _ in range(2)), *(np.zeros(intervals) for _ in range(4)))

    def after(self, known: Tube | None) -> Tube:
        """This tube with its beginning replaced by one that is known already."""
        if known is None:
            return self
        count = len(known.position_norm)
        pairs = ((getattr(known, x.name), getattr(self, x.name)[count:]) for x in fields(self))
        return Tube(*(np.concatenate(pair) for pair in pairs))

    def between(self, begin: int, end: int) -> Tube:
        """The part in these intervals."""
        return Tube(*(getattr(self, x.name)[begin:end] for x in fields(self)))

    def contains(self, other: Tube) -> bool:
        """Whether another tube lies inside."""
        return all(np.all(getattr(other, x.name) <= getattr(self, x.name)) for x in fields(self))

    @property
    def size(self) -> float:
        """One number for how wide the tube is."""
        return float(self.velocity_norm.mean())

    def stepped(self, other: Tube, length: float) -> Tube:
        """The tube ``length`` times as far from this one as another one; where the other is smaller, this one."""
        pairs = ((getattr(self, x.name), getattr(other, x.name)) for x in fields(self))
        return Tube(*(a + length * np.maximum(b - a, 0.0) for a, b in pairs))

    def scaled(self, factor: float) -> Tube:
        """This tube, ``factor`` times as wide."""
        return Tube(*(factor * getattr(self, x.name) for x in fields(self)))


@dataclass(frozen=True)
class Loop:
    """What holds for a tube: the kernels and everything they act on.

    Attributes:
        shift: Relative change of M between desired and true position [-].
        ratios: Smallest and largest eigenvalue of E.
        kernels: Kernels of the frozen loops.
        friction_torque: Bounds of the friction disturbance, (I, n) [Nm].
        friction_norm: Bounds of its norm, (I,).
        lever: Largest acceleration of each joint per unit of norm, (I, n).
        causes: Bounds of the four outputs of each joint, by cause, (I, n, 4) each.
        norms: Bounds of their norms, (I, 4).
    """

    shift: float
    ratios: tuple[float, float]
    kernels: LoopKernels
    friction_torque: Array
    friction_norm: Array
    lever: Array
    causes: dict[str, Array]
    norms: Array


class TubeAnalysis:
    """The bounds as a function of the tube; everything that does not depend on it is computed once.

    Args:
        robot: The arm.
        model: Boxes of the parameters.
        samples: The motion, after what was executed before.
        settings: Gains and timing.
        known: Tube of what was executed before.

    Attributes:
        uncertainty: What may be wrong with the inertial parameters.
        slow_terms: Bounds in all intervals, (I,) each, of slowly varying terms of :class:`ModelTerms`.
    """

    def __init__(
        self,
        robot: RobotModel,
        model: ControlModel,
        samples: MotionSamples,
        settings: RobustSettings,
        known: Tube | None = None,
    ):
        self.robot, self.model, self.samples, self.settings, self.known = robot, model, samples, settings, known
        chosen = self._chosen = _term_nodes(samples)
        q, v, a, payload = (x[chosen] for x in (samples.q, samples.v, samples.a, samples.payload))
        around = [slice(chosen[max(0, i - 1)], chosen[min(i + 1, len(chosen) - 1)]) for i in range(len(chosen))]
        jerk = np.abs(samples.slopes(samples.a))
        jerk = np.stack([jerk[part].max(axis=0) for part in around])
        self.uncertainty, self._ratio = _narrowest(robot, model, q, payload)
        regressor = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE)
        rates = _payload_rates(samples, around)
        terms = compute_model_terms(robot, regressor, model, self.uncertainty, q, v, a, payload, rates)
        self._half_way = 0.5 * np.abs(np.diff(q, axis=0)).max(axis=0)  # to the nearest of these samples, (n,) [rad]
        through = compute_feedthrough(robot, model, settings, terms, self._ratio.upper, v, a, jerk)
        self._feedthrough = Feedthrough(*(self._spread_out(getattr(through, x.name)) for x in fields(Feedthrough)))
        spread = ("inertia_slope", "inertia_rate", "ratio_slope", "ratio_rate", "payload_rate")
        self.slow_terms = {name: self._spread_out(getattr(terms, name)) for name in (*spread, *_CORIOLIS)}
        self.torque_gradient = _SAMPLING * terms.torque_gradient.max(axis=0)

        coarse, nodes = samples.every(_STRIDE), samples.chosen(_STRIDE)
        self._cells = np.minimum(np.arange(self.intervals) // _STRIDE, len(coarse.q) - 2)
        self.inertia = _inertias(robot, model, coarse)
        self._inverse = np.linalg.inv(self.inertia)
        self.smooth = compute_smooth(regressor, model, self.uncertainty, settings, coarse, self.inertia)
        self._jumps = [interval for interval, *_ in samples.jumps]
        self._nodes = nodes
        self._diagonals = [
            self._refined(larger_neighbour(np.diagonal(x, axis1=1, axis2=2))) for x in (self.inertia, self._inverse)
        ]
        self._magnitude = self._refined(larger_neighbour(np.abs(self.inertia)))
        self.smooth_norm = _SAMPLING * self._refined(larger_neighbour(self.smooth.size.norm))
        rate = self.smooth.rate
        self._rate = Signal(_SAMPLING * rate.entries[self._cells], _SAMPLING * rate.norm[self._cells])
        self._errors = (robot.sensors.velocity_error, 0.5 * robot.sensors.position_resolution)
        self._error_norms = [self._norm_of(error) for error in self._errors]

    @property
    def intervals(self) -> int:
        """Number of intervals."""
        return len(self.samples.q) - 1

    def empty_tube(self) -> Tube:
        """The tube the search begins with."""
        return Tube.empty(self.intervals, self.robot.n).after(self.known)

    def _spread_out(self, values: Array) -> Array:
        """Values at the chosen nodes (S,) as bounds in all intervals, (I,)."""
        right = np.searchsorted(self._chosen, np.arange(self.intervals), side="right")
        right = np.clip(right, 1, len(self._chosen) - 1)
        return _SAMPLING * np.maximum(values[right - 1], values[right])

    def _norm_of(self, error: Array) -> Array:
        """Bounds of the norm of every vector whose entries are at most these, (n,), in all intervals, (I,)."""
        size = np.broadcast_to(error, self.robot.n)
        norm = np.sqrt(np.einsum("tij,i,j->t", np.abs(self.inertia), size, size))
        return self._refined(larger_neighbour(norm))

    def _feedback_errors(self, tube: Tube) -> list[tuple[Array, Array]]:
        """What the feedback measures wrongly, velocities and then positions: bounds (n,) and of their norms, (I,).

        Where the velocity is the difference of the last two positions, the loops of the kernels know that. What is left
        is the difference between the desired velocity and its own mean over a period, and errors of the
        positions, to which a wrong time of measuring adds.
        """
        sensors, samples = self.robot.sensors, self.samples
        if not sensors.velocity_is_difference:
            return list(zip(self._errors, self._error_norms, strict=True))
        accelerations = [samples.a, *(side for _, *sides in samples.jumps for side in sides)]
        lag = 0.5 * self.settings.period * np.abs(np.vstack(accelerations)).max(axis=0)
        speed = _SAMPLING * np.abs(samples.v).max(axis=0) + tube.velocity.max(axis=0)
        position = 0.5 * sensors.position_resolution + sensors.stamp_jitter * speed
        return [(error, self._norm_of(error)) for error in (_SAMPLING * lag, position)]

    def _refined(self, values: Array) -> Array:
        """Values in the coarse intervals as values in all intervals."""
        return values[self._cells]

    def close(self, tube: Tube) -> Loop:
        """Computes what holds as long as the errors stay in ``tube``.

        Raises:
            BoundNotAvailable: The loop may be unstable.
        """
        slow = self.slow_terms
        shift = float((slow["inertia_slope"] * tube.position_norm).max())
        if not shift < 0.5:
            raise BoundNotAvailable(
                "the position errors may change the inertia by half: the parameter boxes are too wide, or the motion "
                "too fast, for these gains"
            )
        ratios = self._ratio.near(_SAMPLING * (tube.position.max(axis=0) + self._half_way))
        inertia_rate = (slow["inertia_rate"] + slow["inertia_slope"] * tube.velocity_norm) / (1.0 - shift)
        growth, most = self._growth(0.5 * inertia_rate)
        kernels = loop_kernels(self.settings, ratios, growth, most, self.robot.sensors.velocity_is_difference)
        torque = bound_friction(self.model, self.settings, self.samples.v, tube.velocity)
        friction = self._bound_torques(torque)
        shrunk = np.sqrt(1.0 - shift)
        lever = np.sqrt(self._diagonals[1]) / shrunk
        entries = friction.entries + np.sqrt(self._diagonals[1]) * (shift / (1.0 - shift) * friction.norm)[:, None]
        friction = Signal(entries, friction.norm / shrunk)
        feedback = np.sqrt(1.0 + shift) * self.smooth_norm + tube.feedback_norm
        errors = (tube.position_norm, tube.velocity_norm, tube.acceleration_norm)
        caused = self._feedthrough.evaluate(*errors, feedback) / (1.0 - shift)
        changing = slow["ratio_rate"] + slow["payload_rate"] * ratios[1] + slow["ratio_slope"] * tube.velocity_norm
        rate = changing / (1.0 - shift)
        causes, norms = self._respond(tube, kernels, ratios, np.sqrt(1.0 + shift), friction, caused, rate, lever)
        return Loop(shift, ratios, kernels, torque, friction.norm, lever, causes, norms)

    def _growth(self, rate: Array) -> tuple[float, float]:
        """Largest of a rate (I,), and of its integral over the time the loop remembers."""
        width = self.samples.step
        bins = int(np.ceil(memory(self.settings) / width)) + 1
        before = np.concatenate([np.zeros(bins), np.cumsum(rate)])
        fastest = float(rate.max())
        # Before the first interval, all is as in it.
        over = before[bins:] - before[:-bins] + rate[0] * np.maximum(bins - 1 - np.arange(len(rate)), 0)
        return fastest, width * float(over.max())

    def next_tube(self, tube: Tube, loop: Loop) -> Tube:
        """Bounds of the errors that follow; what was known before stays."""
        half = 0.5 * self.settings.period  # the controller's samples are a period apart
        joints = np.minimum(sum(loop.causes.values()), loop.lever[..., None] * loop.norms[:, None])
        return Tube(
            position=joints[..., POSITION] + half * tube.velocity,
            velocity=joints[..., VELOCITY] + half * loop.lever * tube.acceleration_norm[:, None],
            position_norm=loop.norms[:, POSITION] + half * tube.velocity_norm,
            velocity_norm=loop.norms[:, VELOCITY] + half * tube.acceleration_norm,
            acceleration_norm=loop.norms[:, ACCELERATION],
            feedback_norm=loop.norms[:, FEEDBACK],
        ).after(self.known)

    def bound_torque(self, tube: Tube, loop: Loop) -> Array:
        """Bounds of the commanded torque less what the true parameters need for the desired motion, (I, n) [Nm].

        It is ``M (f - a_w)``, plus what the nominal model with measured values differs from that at the desired ones.
        """
        slow, errors = self.slow_terms, (tube.position_norm, tube.velocity_norm)
        lever = np.sqrt((1.0 + loop.shift) * self._diagonals[0])
        causes = {name: values[..., FEEDBACK] for name, values in loop.causes.items()}
        # Through the middle, friction acts on its own joint; but for what the inertia changes while remembered.
        center = loop.kernels.rough.center[:, FEEDBACK]
        friction = recall(center, loop.friction_torque)
        changed = (loop.kernels.memory_change + center.sum() * loop.shift) * loop.friction_norm.max()
        known = self.apply_inertia(loop.shift, causes["sensors"] + causes["model"])
        coupled = (causes["coupling"] + causes["errors themselves"]) / loop.lever
        parts = friction + known + lever * (coupled + changed)
        whole = lever * loop.norms[:, FEEDBACK, None]
        coriolis, coriolis_slope = slow["coriolis_rate"], slow["coriolis_slope"]
        gain, measured = self.settings.position_gain, self._error_norms
        position, velocity = errors[0] + measured[1], errors[1] + measured[0]
        model = loop.shift * self.smooth_norm / (1.0 - loop.shift)
        model += coriolis * velocity
        model += gain * (coriolis + coriolis_slope * velocity) * position
        viscous = np.abs(self.model.friction[:, 1]) * (tube.velocity + self._errors[0])
        gravity = (tube.position + self._errors[1]) @ self.torque_gradient.T
        return np.minimum(parts, whole) + lever * model[:, None] + viscous + gravity

    def apply_inertia(self, shift: float, accelerations: Array) -> Array:
        """Bounds of ``M(q) a`` for all accelerations at most these, (I, n), with q in the tube, (I, n) [Nm].

        ``|y^T (M(q) - M(q_d)) z| <= shift |y| |z|`` in the norm of ``M(q_d)``, and with unit vectors for y and z
        ``|M(q)_ij| <= |M(q_d)_ij| + shift sqrt(M(q_d)_ii M(q_d)_jj)``: an entry that is 0 at q_d need not stay it.
        """
        size = np.sqrt(self._diagonals[0])
        changed = shift * size * np.einsum("ti,ti->t", size, accelerations)[:, None]
        return np.einsum("tij,tj->ti", self._magnitude, accelerations) + changed

    def _bound_torques(self, torque: Array) -> Signal:
        """Bounds of ``M^-1 h`` for all torques ``|h| <= torque``, (I, n)."""
        starts = np.flatnonzero(np.diff(self._cells, prepend=-1))
        coarse = bound_torques(self._inverse[1:], np.maximum.reduceat(torque, starts, axis=0))
        before = bound_torques(self._inverse[:-1], np.maximum.reduceat(torque, starts, axis=0))
        entries, norm = np.maximum(coarse.entries, before.entries), np.maximum(coarse.norm, before.norm)
        return Signal(self._refined(entries), self._refined(norm))

    def _respond(
        self,
        tube: Tube,
        kernels: LoopKernels,
        ratios: tuple[float, float],
        grown: float,
        friction: Signal,
        caused: Array,
        rate: Array,
        lever: Array,
    ) -> tuple[dict[str, Array], Array]:
        """Bounds of the outputs of each joint by cause, and of their norms."""
        n, jumps, smooth = self.robot.n, self.smooth.jumps, kernels.smooth
        model = recall(smooth.center, self._rate.entries)
        sensors = np.zeros((self.intervals, n, 4))
        own = self._own(tube, kernels, ratios, caused, rate)
        coupled, norms = (
            rough + grown * slow
            for rough, slow in zip(
                _recall_spread(kernels.rough, friction.norm), _recall_spread(smooth, self._rate.norm), strict=True
            )
        )
        norms += own
        measuring = (kernels.velocity_error, kernels.position_error)
        for (error, norm), kernel in zip(self._feedback_errors(tube), measuring, strict=True):
            sensors += np.broadcast_to(error, n)[:, None] * kernel.center
            coupled += grown * norm[:, None] * kernel.deviation
            norms += grown * norm[:, None] * kernel.largest
        for index, interval in enumerate(self._jumps):
            model += self._after(interval, kernels.step.center)[:, None] * jumps.entries[index][:, None]
            coupled += grown * self._after(interval, kernels.step.deviation) * jumps.norm[index]
            norms += grown * self._after(interval, kernels.step.largest) * jumps.norm[index]
        causes = {
            "friction": recall(kernels.rough.center, friction.entries),
            "model": model,
            "sensors": sensors,
            "coupling": lever[..., None] * coupled[:, None],
            "errors themselves": lever[..., None] * own[:, None],
        }
        return causes, norms

    def _own(self, tube: Tube, kernels: LoopKernels, ratios: tuple[float, float], caused: Array, rate: Array) -> Array:
        """Bounds of the norm of what the errors cause themselves, (I, 4): as disturbances, and as E changes."""
        total = recall(kernels.rough.largest, caused)
        total += recall_change(kernels.travel, kernels.travel_age, rate, tube.velocity_norm, kernels.bin)
        total += recall_change(kernels.teeth, kernels.teeth_age, rate, tube.acceleration_norm, kernels.bin)
        total += recall(kernels.teeth, rate * tube.velocity_norm)
        total[:, ACCELERATION] += rate * tube.velocity_norm / ratios[0]
        return total

    def _after(self, interval: int, kernel: Array) -> Array:
        """A response by age (B, 4) to what happens in an interval, as bounds in all intervals, (I, 4)."""
        result = np.zeros((self.intervals, kernel.shape[1]))
        values = np.maximum(kernel, np.concatenate([kernel[:1], kernel[:-1]]))[: self.intervals - interval]
        result[interval : interval + len(values)] = values
        return result


def _recall_spread(kernel: Kernel, norm: Array) -> Array:
    """What the deviation and the largest weights make of a norm (I,), (2, I, 4)."""
    both = np.stack([kernel.deviation, kernel.largest], axis=1)
    return recall(both.reshape(len(both), -1), norm).reshape(-1, *both.shape[1:]).swapaxes(0, 1)


def _term_nodes(samples: MotionSamples) -> NDArray[np.intp]:
    """Nodes at which the slowly varying terms are evaluated, the first and the last among them."""
    last = len(samples.q) - 1
    frequency = float((np.abs(samples.a).max(axis=0) / np.maximum(np.abs(samples.v).max(axis=0), 1e-9)).max())
    step = np.clip(_TERM_ANGLE / max(frequency, 1e-9), *_TERM_STEPS)
    count = min(last, max(1, int(np.ceil(last * samples.step / step))))
    return np.unique(np.linspace(0, last, count + 1).round().astype(int))


def _payload_rates(samples: MotionSamples, around: list[slice]) -> Array:
    """All rates at which the nominal payload changes around each of S nodes, (S, R, 10) [1/s]; zero where fewer."""
    rates = samples.slopes(samples.payload)
    distinct, which = np.unique(rates.round(9), axis=0, return_inverse=True)
    present = np.array([np.isin(np.arange(len(distinct)), which.reshape(-1)[part]) for part in around])
    return present[..., None] * distinct


def _narrowest(
    robot: RobotModel, model: ControlModel, q: Array, payload: Array
) -> tuple[InertialUncertainty, InertiaRatio]:
    """Of the valid descriptions of the uncertainty the one with the narrowest range of the inertia ratio, and that."""
    probes = np.unique(np.linspace(0, len(q) - 1, _PROBES).round().astype(int))
    options = inertial_uncertainties(robot, model)

    def width(one: InertialUncertainty) -> float:
        lower, upper = inertia_ratios(robot, one, q[:1], payload[:1])
        return float(upper[0] / max(lower[0], 1e-9))

    best = min(options, key=width) if len(options) > 1 else options[0]
    return best, compute_inertia_ratio(robot, best, q, payload, probes)


def _inertias(robot: RobotModel, model: ControlModel, samples: MotionSamples) -> Array:
    """Nominal inertia at nodes, (N, n, n)."""
    if np.ptp(samples.payload, axis=0).max() == 0.0:
        return PassiveDynamics(robot, add_payload(model.theta, samples.payload[0])).inertia(samples.q)
    columns = inertia_columns(robot, samples.q)[..., robot.inertial_slice(robot.n)]
    arm = PassiveDynamics(robot, add_payload(model.theta, samples.payload[-1])).inertia(samples.q)
    return arm + np.einsum("sabl,sl->sab", columns, samples.payload - samples.payload[-1])
