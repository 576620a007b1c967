"""Bounds of the tracking errors over a motion if they never leave a given tube.

Each output y (position, velocity or feedback) of joint j at any time is at most

    sum over inputs and over the past of  nominal kernel * |input_j|  +  sqrt((M^-1)_jj) deviation kernel * |input|,

with the kernels of :mod:`frozen_loop`: the response of the nominal loop acts joint by joint, and only what the true
inertia changes about it may move energy from one joint to another. docs/control.md has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.disturbance import (
    Feedthrough,
    Signal,
    bound_friction,
    bound_torques,
    compute_feedthrough,
    compute_smooth,
)
from sysid_ros.core.control.frozen_loop import (
    ACCELERATION,
    FEEDBACK,
    POSITION,
    VELOCITY,
    BoundNotAvailable,
    LoopKernels,
    loop_kernels,
)
from sysid_ros.core.control.inertia_ratio import compute_inertia_ratio
from sysid_ros.core.control.memory import recall, recall_change
from sysid_ros.core.control.model import ControlModel, PassiveDynamics
from sysid_ros.core.control.model_terms import compute_model_terms
from sysid_ros.core.control.motion import MotionSamples, larger_neighbour
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_TERM_SAMPLES = 50
"""Samples at which the slowly varying terms are evaluated."""
_PROBES = 3
"""About how many of them serve to find how the inertia ratio changes with the position."""
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
        ratio_rate: How fast E changes, (I,) [1/s].
        kernels: Kernels of the frozen loops.
        friction_torque: Bounds of the friction disturbance, (I, n) [Nm].
        friction: The same as an acceleration, (I, n) and (I,).
        caused: Bound of the norm of what the errors themselves, measuring and holding add, (I,).
        lever: Largest acceleration of each joint per unit of norm, (I, n).
    """

    shift: float
    ratios: tuple[float, float]
    ratio_rate: Array
    kernels: LoopKernels
    friction_torque: Array
    friction: Signal
    caused: Array
    lever: Array


class TubeAnalysis:
    """The bounds as a function of the tube; everything that does not depend on it is computed once.

    Args:
        robot: The arm.
        model: Nominal parameters and their boxes.
        samples: The motion.
        settings: Gains and timing.
    """

    def __init__(self, robot: RobotModel, model: ControlModel, samples: MotionSamples, settings: RobustSettings):
        self.robot, self.model, self.samples, self.settings = robot, model, samples, settings
        nodes = len(samples.q)
        chosen = np.unique(np.linspace(0, nodes - 1, min(nodes, _TERM_SAMPLES)).round().astype(int))
        q, v, a = samples.q[chosen], samples.v[chosen], samples.a[chosen]
        jerk = np.abs(samples.slopes(samples.a))
        jerk = np.stack([jerk[max(0, i - 1) : i + 1].max(axis=0) for i in chosen])
        terms = compute_model_terms(robot, model, q, v, a)
        self._ratio = compute_inertia_ratio(robot, model, q, q[:: max(1, len(q) // _PROBES)])
        self._chosen = chosen
        self._half_way = 0.5 * np.abs(np.diff(q, axis=0)).max(axis=0)  # to the nearest of these samples, (n,) [rad]
        through = compute_feedthrough(robot, model, settings, terms, v, a, jerk)
        self._feedthrough = Feedthrough(*(self._spread_out(getattr(through, x.name)) for x in fields(Feedthrough)))
        self.torque_gradient = terms.torque_gradient.max(axis=0)
        self._inertia_slope = self._spread_out(terms.inertia_slope)
        self._inertia_rate = self._spread_out(terms.inertia_rate)
        self._ratio_slope = self._spread_out(terms.ratio_slope)
        self._ratio_rate = self._spread_out(terms.ratio_rate)
        self.inertia = PassiveDynamics(robot, model.total).inertia(samples.q)
        self.inverse = np.linalg.inv(self.inertia)
        self.smooth = compute_smooth(robot, model, settings, samples, self.inertia)
        self._lever = larger_neighbour(np.sqrt(np.diagonal(self.inverse, axis1=1, axis2=2)))
        self._smooth_norm = _SAMPLING * larger_neighbour(self.smooth.size.norm)
        errors = (robot.sensors.velocity_error, 0.5 * robot.sensors.position_resolution)
        self._error_norms = [
            larger_neighbour(np.sqrt(np.einsum("tij,i,j->t", np.abs(self.inertia), one, one))) for one in errors
        ]
        self._errors = errors

    @property
    def intervals(self) -> int:
        """Number of intervals."""
        return len(self.samples.q) - 1

    def _spread_out(self, values: Array) -> Array:
        """Values at the chosen nodes (S,) as bounds in all intervals, (I,)."""
        right = np.searchsorted(self._chosen, np.arange(self.intervals), side="right")
        right = np.clip(right, 1, len(self._chosen) - 1)
        return _SAMPLING * np.maximum(values[right - 1], values[right])

    def close(self, tube: Tube) -> Loop:
        """Computes what holds as long as the errors stay in ``tube``.

        Raises:
            BoundNotAvailable: The loop may be unstable.
        """
        shift = float((self._inertia_slope * tube.position_norm).max())
        if not shift < 0.5:
            raise BoundNotAvailable(
                "the position errors may change the inertia by half: the parameter boxes are too wide, or the motion "
                "too fast, for these gains"
            )
        ratios = self._ratio.near(_SAMPLING * (tube.position.max(axis=0) + self._half_way))
        inertia_rate = (self._inertia_rate + self._inertia_slope * tube.velocity_norm) / (1.0 - shift)
        kernels = loop_kernels(self.settings, ratios, 0.5 * float(inertia_rate.max()))
        torque = bound_friction(self.model, self.settings, self.samples.v, tube.velocity)
        friction = bound_torques(self.inverse[1:], torque)
        shrunk = np.sqrt(1.0 - shift)
        shifted = self._lever * (shift / (1.0 - shift) * friction.norm)[:, None]
        feedback = np.sqrt(1.0 + shift) * self._smooth_norm + tube.feedback_norm
        errors = (tube.position_norm, tube.velocity_norm, tube.acceleration_norm)
        caused = self._feedthrough.evaluate(*errors, feedback) / (1.0 - shift)
        return Loop(
            shift=shift,
            ratios=ratios,
            ratio_rate=(self._ratio_rate + self._ratio_slope * tube.velocity_norm) / (1.0 - shift),
            kernels=kernels,
            friction_torque=torque,
            friction=Signal(friction.entries + shifted, friction.norm / shrunk),
            caused=caused,
            lever=self._lever / shrunk,
        )

    def next_tube(self, tube: Tube, loop: Loop) -> Tube:
        """Bounds of the errors that follow."""
        half = 0.5 * self.settings.period  # the controller's samples are a period apart
        position = sum(self.causes(POSITION, tube, loop).values())
        velocity = sum(self.causes(VELOCITY, tube, loop).values())
        norms = [self.norm(output, tube, loop) for output in (POSITION, VELOCITY, ACCELERATION, FEEDBACK)]
        return Tube(
            position=position + half * tube.velocity,
            velocity=velocity + half * loop.lever * tube.acceleration_norm[:, None],
            position_norm=norms[0] + half * tube.velocity_norm,
            velocity_norm=norms[1] + half * tube.acceleration_norm,
            acceleration_norm=norms[2],
            feedback_norm=norms[3],
        )

    def causes(self, output: int, tube: Tube, loop: Loop) -> dict[str, Array]:
        """Bounds of one output of each joint, by cause, (I, n) each."""
        kernels, grown = loop.kernels, np.sqrt(1.0 + loop.shift)
        rate, jumps = self.smooth.rate, self.smooth.jumps
        causes = {
            "friction": recall(kernels.rough.nominal[:, output], loop.friction.entries),
            "model": _SAMPLING * recall(kernels.smooth.nominal[:, output], rate.entries),
            "sensors": np.zeros((self.intervals, self.robot.n)),
        }
        coupled = recall(kernels.rough.deviation[:, output], loop.friction.norm)
        coupled += _SAMPLING * grown * recall(kernels.smooth.deviation[:, output], rate.norm)
        for error, norm, kernel in zip(
            self._errors, self._error_norms, (kernels.velocity_error, kernels.position_error), strict=True
        ):
            causes["sensors"] += kernel.nominal[output] * error
            coupled += grown * kernel.deviation[output] * norm
        for index, (interval, *_) in enumerate(self.samples.jumps):
            causes["model"] += self._after(interval, kernels.step.nominal[:, output])[:, None] * jumps.entries[index]
            coupled += grown * self._after(interval, kernels.step.deviation[:, output]) * jumps.norm[index]
        causes["coupling"] = loop.lever * coupled[:, None]
        causes["errors themselves"] = loop.lever * self.own_norm(output, tube, loop)[:, None]
        return causes

    def norm(self, output: int, tube: Tube, loop: Loop) -> Array:
        """Bounds of the norm of one output, (I,)."""
        kernels, grown = loop.kernels, np.sqrt(1.0 + loop.shift)
        total = recall(kernels.rough.largest[:, output], loop.friction.norm) + self.own_norm(output, tube, loop)
        total += _SAMPLING * grown * recall(kernels.smooth.largest[:, output], self.smooth.rate.norm)
        for norm, kernel in zip(self._error_norms, (kernels.velocity_error, kernels.position_error), strict=True):
            total += grown * kernel.largest[output] * norm
        for index, (interval, *_) in enumerate(self.samples.jumps):
            total += grown * self._after(interval, kernels.step.largest[:, output]) * self.smooth.jumps.norm[index]
        return total

    def own_norm(self, output: int, tube: Tube, loop: Loop) -> Array:
        """Bounds of the norm of what the errors cause themselves, (I,): as disturbances, and as the inertia changes."""
        kernels, rate = loop.kernels, loop.ratio_rate
        total = recall(kernels.rough.largest[:, output], loop.caused)
        total += recall_change(
            kernels.travel[:, output], kernels.travel_age[:, output], rate, tube.velocity_norm, kernels.bin
        )
        total += recall_change(
            kernels.teeth[:, output], kernels.teeth_age[:, output], rate, tube.acceleration_norm, kernels.bin
        )
        total += recall(kernels.teeth[:, output], rate * tube.velocity_norm)
        if output == ACCELERATION:
            total += rate * tube.velocity_norm / loop.ratios[0]
        return total

    def _after(self, interval: int, kernel: Array) -> Array:
        """A response by age (B,) to what happens in an interval, as bounds in all intervals, (I,)."""
        result = np.zeros(self.intervals)
        values = np.maximum(kernel, np.concatenate([kernel[:1], kernel[:-1]]))[: self.intervals - interval]
        result[interval : interval + len(values)] = values
        return result
