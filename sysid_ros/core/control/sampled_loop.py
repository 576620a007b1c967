"""The sampled closed loop about a posture: stability, gain and phase margins, responses; joints rigid or elastic.

With velocities and gravity's gradient left out, motors, gears and links are linear,

    H dv/dt = k (q_m - q) + d (v_m - v),   I_a dv_m/dt = tau - k (q_m - q) - d (v_m - v) - torque_damping k (v_m - v),

or ``(H + I_a) dv/dt = tau`` with rigid joints. The robust controller's feedback of the measured positions and
velocities, ``tau = -M ((c + K) v + c K q) + M eta``, is held for one period and acts ``delay`` after its sample; both
are exact. All joints are closed at once: a margin is that of one joint's torque with all others closed.

Source: K. J. Astrom and R. M. Murray, Feedback Systems, 2nd edition, section 10.3 (margins).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import PositionSide, RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LoopCase:
    """An arm at a posture.

    Attributes:
        q: The posture, (n,) [rad].
        nominal: Parameters of the controller, payload included, (14 n,).
        truth: True parameters, payload included, (14 n,).
        stiffness_share: Where in its range the stiffness of elastic joints is, from -1 to 1.
    """

    q: Array
    nominal: Array
    truth: Array
    stiffness_share: float = 0.0


@dataclass(frozen=True)
class LoopMargins:
    """Margins of each joint's loop, the others closed; NaN where the loop is unstable.

    Attributes:
        radius: Spectral radius of the sampled loop; below 1 it is stable.
        distance: Least distance of the loop's frequency response to -1, (n,) [-]: any gain from ``1 / (1 + distance)``
            to ``1 / (1 - distance)`` and any phase up to ``2 asin(distance / 2)`` is survived.
        gain: Factor by which the loop gain may grow, (n,) [-]; infinite where it may without limit.
        phase: Phase margin, (n,) [rad].
        delay: Additional delay that is survived, (n,) [s].
    """

    radius: float
    distance: Array
    gain: Array
    phase: Array
    delay: Array

    @classmethod
    def least(cls, several: Iterable[LoopMargins]) -> LoopMargins:
        """Return the least margins of several loops."""
        loops = list(several)
        rows = (np.min([getattr(one, x) for one in loops], axis=0) for x in ("distance", "gain", "phase", "delay"))
        return cls(max(one.radius for one in loops), *rows)


class SampledLoop:
    """The closed loop of one arm at one posture.

    Its state is that of the arm (links, with elastic joints also motors and the torque of lagging actuators), the
    torque of the sample before, the integral state and the position of the sample before.

    Attributes:
        step: From one sample to the next, (N, N).
        measured: Rows of the state: positions and velocities where they are measured, (2, n, N).
        torque: Rows of the state: torque computed from this sample, (n, N).
        inputs: Columns: effect on the next sample of torques of motors and of links held for a period, and of the
            errors of measured velocities and positions, each (N, n).
        noise: Effect of errors of measured velocities and positions on the torque of the same sample, each (n, n).
    """

    def __init__(self, robot: RobotModel, settings: RobustSettings, case: LoopCase):
        self.settings, n = settings, robot.n
        period, c, k = settings.period, settings.bandwidth, settings.position_gain
        arm, by_command, by_motor, by_link, position, velocity = _arm(robot, case)
        size = len(arm)
        whole, _ = _hold(arm, by_command, period)
        rest, new = _hold(arm, by_command, period - settings.delay)
        old = rest @ _hold(arm, by_command, settings.delay)[1]
        total = size + 3 * n
        before, eta, last = (slice(size + i * n, size + (i + 1) * n) for i in range(3))
        q, v, integral = np.zeros((n, total)), np.zeros((n, total)), np.zeros((n, total))
        q[:, :size], integral[:, eta] = position, np.eye(n)
        if robot.sensors.velocity_is_difference:
            v[:, :size], v[:, last] = position / period, -np.eye(n) / period
        else:
            v[:, :size] = velocity
        inertia = ArmDynamics(robot, case.nominal, armature=True).inertia(case.q)
        self.torque = -inertia @ ((c + k) * v + c * k * q - integral)
        self.measured = np.stack([q, v])
        rate = period * settings.integral_gain * c
        self.step = np.zeros((total, total))
        self.step[:size, :size], self.step[:size, before] = whole, old
        self.step[:size] += new @ self.torque
        self.step[before], self.step[last] = self.torque, q
        self.step[eta] = integral - rate * (v + k * q)
        motor, link = np.zeros((total, n)), np.zeros((total, n))
        motor[:size], link[:size] = _hold(arm, by_motor, period)[1], _hold(arm, by_link, period)[1]
        wrong_v = np.eye(n) * (1.0 / period if robot.sensors.velocity_is_difference else 0.0)
        self.noise = (-(c + k) * inertia, -inertia @ ((c + k) * wrong_v + c * k * np.eye(n)))
        errors = []
        for noise, drift in zip(self.noise, (np.eye(n), wrong_v + k * np.eye(n)), strict=True):
            effect = np.zeros((total, n))
            effect[:size], effect[before], effect[eta] = new @ noise, noise, -rate * drift
            errors.append(effect)
        errors[1][last] = np.eye(n)
        self.inputs = (motor, link, *errors)
        self._command = np.zeros((total, n))
        self._command[:size], self._command[before] = new, np.eye(n)

    @cached_property
    def radius(self) -> float:
        """Spectral radius of a step; below 1 the loop is stable."""
        return self.radius_with(1.0)

    def radius_with(self, gain: float) -> float:
        """Return the spectral radius of a step with all feedback torques multiplied by a gain."""
        step = self.step + (gain - 1.0) * self._command @ self.torque
        return float(np.abs(np.linalg.eigvals(step)).max())

    def margins(self) -> LoopMargins:
        """Compute the margins."""
        n = len(self.torque)
        if self.radius >= 1.0:
            return LoopMargins(self.radius, *np.full((4, n), np.nan))
        period = self.settings.period
        frequencies = np.geomspace(1.0, np.pi / period * (1.0 - 1e-9), 400)
        z = np.exp(1j * frequencies * period)
        response = np.linalg.solve(z[:, None, None] * np.eye(len(self.step)) - self.step, self._command.astype(complex))
        sensitivity = np.diagonal(np.eye(n) + self.torque @ response, axis1=1, axis2=2)
        opened = 1.0 / sensitivity - 1.0
        rows = [_margins(frequencies, opened[:, joint]) for joint in range(n)]
        gain, phase, delay = np.array(rows).T
        return LoopMargins(self.radius, 1.0 / np.abs(sensitivity).max(axis=0), gain, phase, delay)

    def responses(self, count: int) -> Array:
        """Return the effect of an input of one sample at the samples after it, (4, count, 3, n, n).

        Returns:
            Of the four ``inputs``, sample by sample: measured positions, velocities and the torque, by joint, for each
                joint's input.
        """
        n = len(self.torque)
        outputs = np.concatenate([*self.measured, self.torque])
        state = np.concatenate(self.inputs, axis=1)
        result = np.empty((count, 3 * n, 4 * n))
        for k in range(count):
            result[k] = outputs @ state
            state = self.step @ state
        return np.asarray(result.reshape(count, 3, n, 4, n).transpose(3, 0, 1, 2, 4))


def _hold(arm: Array, columns: Array, seconds: float) -> tuple[Array, Array]:
    """Return the transition over some time, and the effect of inputs held during it."""
    size, count = columns.shape
    augmented = np.zeros((size + count, size + count))
    augmented[:size, :size], augmented[:size, size:] = arm, columns
    moved = expm(seconds * augmented)
    return moved[:size, :size], moved[:size, size:]


def _arm(robot: RobotModel, case: LoopCase) -> tuple[Array, ...]:
    """Return rates of the arm by its state, commands, torques of motors and links; its positions and velocities."""
    n, elasticity = robot.n, robot.elasticity
    none, one = np.zeros((n, n)), np.eye(n)
    total = ArmDynamics(robot, case.truth, armature=True).inertia(case.q)
    if elasticity is None:
        by_torque = np.vstack([none, np.linalg.inv(total)])
        arm = np.block([[none, one], [none, none]])
        return arm, by_torque, by_torque, by_torque, np.hstack([one, none]), np.hstack([none, one])
    armature = robot.friction(case.truth)[:, 2]
    motors, links = np.diag(1.0 / armature), np.linalg.inv(total - np.diag(armature))
    k = np.diag(elasticity.stiffness * (1.0 + case.stiffness_share * elasticity.stiffness_error))
    d, active = np.diag(elasticity.damping), np.diag(elasticity.torque_damping) @ k
    arm = np.block(
        [
            [none, none, one, none],
            [none, none, none, one],
            [-links @ k, links @ k, -links @ d, links @ d],
            [motors @ k, -motors @ k, motors @ (d + active), -motors @ (d + active)],
        ]
    )
    by_motor, by_link = np.vstack([none, none, none, motors]), np.vstack([none, none, links, none])
    by_command = by_motor
    if elasticity.actuator_lag > 0.0:
        lag = one / elasticity.actuator_lag
        arm = np.block([[arm, by_motor], [np.zeros((n, 4 * n)), -lag]])
        by_motor, by_link = (np.vstack([x, none]) for x in (by_motor, by_link))
        by_command = np.vstack([np.zeros((4 * n, n)), lag])
    first = 0 if elasticity.position_side is PositionSide.LINK else n
    rows = np.eye(len(arm))
    return arm, by_command, by_motor, by_link, rows[first : first + n], rows[2 * n + first : 3 * n + first]


def _margins(frequencies: Array, opened: Array) -> tuple[float, float, float]:
    """Return gain, phase and delay margin of a stable loop with this open-loop response."""
    negative = (opened.imag[:-1] * opened.imag[1:] <= 0.0) & (opened.real[:-1] < 0.0) & (opened.real[1:] < 0.0)
    at = np.flatnonzero(negative)
    share = opened.imag[at] / np.where(
        opened.imag[at] == opened.imag[at + 1], 1.0, opened.imag[at] - opened.imag[at + 1]
    )
    size = -(opened.real[at] + share * (opened.real[at + 1] - opened.real[at]))
    gain = float(np.min(1.0 / size[size < 1.0], initial=np.inf))
    log = np.log(np.abs(opened))
    at = np.flatnonzero(log[:-1] * log[1:] <= 0.0)
    if not at.size:
        return gain, np.pi, np.inf
    share = log[at] / np.where(log[at] == log[at + 1], 1.0, log[at] - log[at + 1])
    crossing = opened[at] + share * (opened[at + 1] - opened[at])
    lags = np.mod(np.angle(crossing) + np.pi, 2.0 * np.pi)  # phase that may be lost before -1 is reached
    speeds = frequencies[at] + share * (frequencies[at + 1] - frequencies[at])
    nearest = np.minimum(lags, 2.0 * np.pi - lags)
    return gain, float(nearest.min()), float((lags / speeds).min())
