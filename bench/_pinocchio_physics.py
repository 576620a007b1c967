"""A second simulation of arms, with which closed-loop trials share no integrator: Pinocchio, and steps of our own.

Each step is Moreau's: velocities change by impulses with the dynamics in the middle of the step, and Coulomb friction
obeys the set-valued law at its end, ``F_c Sign(v)``. Nothing of MuJoCo is used: neither its dynamics nor its friction
constraint.

Source: J. J. Moreau, Unilateral contact and dry friction in finite freedom dynamics, 1988; theta = 1/2 for positions.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import JointElasticity, PositionSide, RobotModel

Array = np.ndarray

_STEP = 2.5e-4
"""Longest step [s]."""
_PHASE = 0.2
"""Longest step in terms of the phase of the fastest oscillation of elastic joints [rad]."""
_PIVOTS, _SWEEPS = 20, 500
"""Most changes of what slides and what sticks, and most sweeps over the joints where these go on in circles."""
_SLIP = 1e-10
"""Velocity up to which the law of friction may be missed [rad/s]."""


class PinocchioPhysics:
    """An arm that torques of its motors move, with the interface of ``ArmPhysics`` that trials use.

    Args:
        robot: The arm; its joints are elastic where it has an elasticity.
        theta: True parameters, (14 n,).
        payload: True payload about the frame of the last joint, (10,); None for none.
        period: Time of :meth:`advance` [s].
        stiffness_share: Where in its range the true stiffness is, from -1 to 1.

    Attributes:
        dynamics: Torques of the links.
        friction: True friction of the joints, (n, 4).
    """

    def __init__(
        self,
        robot: RobotModel,
        theta: Array,
        payload: Array | None,
        period: float,
        stiffness_share: float = 0.0,
    ):
        self._robot, self._theta, self._n = robot, np.array(theta), robot.n
        elasticity = self._elasticity = robot.elasticity and robot.elasticity.within(stiffness_share)
        self.friction = robot.friction(self._theta)
        self._coulomb, self._viscous, self._armature, self._offset = (column.copy() for column in self.friction.T)
        self._model = robot.pin_model.copy()
        self._model.armature = np.zeros(robot.n)
        self._data = self._model.createData()
        self.q, self.v = robot.home.copy(), np.zeros(robot.n)
        self._motors = robot.home.copy(), np.zeros(robot.n)  # positions and velocities of elastic joints' motors
        self._impulse = self._applied = self._acceleration = np.zeros(robot.n)
        self.set_payload(payload)
        step = _STEP
        if elasticity is not None:
            links = ArmDynamics(robot, theta).inertia(robot.home)  # oscillations are fastest with the hand empty
            step = min(step, _PHASE / elasticity.natural_frequencies(links, self._armature)[-1])
        self._substeps = int(np.ceil(period / step))
        self._step = period / self._substeps

    @property
    def measured(self) -> tuple[Array, Array]:
        """Positions [rad] and velocities [rad/s] on the side of the gears at which they are measured, (n,) each."""
        is_link = self._elasticity is None or self._elasticity.position_side is PositionSide.LINK
        q, v = (self.q, self.v) if is_link else self._motors
        return q.copy(), v.copy()

    @property
    def motor_speed(self) -> Array:
        """Velocities of the motors, (n,) [rad/s]."""
        return np.array(self.v if self._elasticity is None else self._motors[1])

    @property
    def deflection(self) -> tuple[Array, Array]:
        """Position [rad] and velocity [rad/s] of the motors less those of the links, (n,) each; zero if rigid."""
        if self._elasticity is None:
            return np.zeros(self._n), np.zeros(self._n)
        return self._motors[0] - self.q, self._motors[1] - self.v

    def set_payload(self, payload: Array | None) -> None:
        """Attach, change or (None) detach what the arm holds."""
        self.dynamics = ArmDynamics(self._robot, self._theta, payload)
        total = add_payload(self._theta, 0.0 if payload is None else payload)
        for body in range(1, self._n + 1):
            self._model.inertias[body] = pin.Inertia.FromDynamicParameters(total[self._robot.inertial_slice(body)])

    def place(self, q: Array) -> None:
        """Put the links somewhere at rest, (n,) [rad], with the gears deflected as gravity demands."""
        self.q, turned = np.array(q, dtype=float), np.array(q, dtype=float)
        if self._elasticity is not None:
            turned = turned + self.dynamics.gravity(self.q) / self._elasticity.stiffness
        self._motors = turned, np.zeros(self._n)
        self.halt()

    def halt(self) -> None:
        """Take all velocities away, and what the actuators still do; the motors then balance gravity."""
        self.v, self._motors = np.zeros(self._n), (self._motors[0], np.zeros(self._n))
        self._impulse, self._acceleration = np.zeros(self._n), np.zeros(self._n)
        self._applied = self.static_torque()

    def set_friction_loss(self, torque: Array) -> None:
        """Set the Coulomb friction of the motors, (n,) [Nm]."""
        self._coulomb = np.array(torque, dtype=float)

    def scale_friction(self, factor: float) -> None:
        """Multiply Coulomb and viscous friction as they act now."""
        self._coulomb, self._viscous = factor * self._coulomb, factor * self._viscous

    def static_torque(self) -> Array:
        """Motor torque that balances gravity and offset, (n,) [Nm]."""
        return self.dynamics.gravity(self.q) + self._offset

    def acceleration(self) -> Array:
        """Accelerations of the links in the last step, (n,) [rad/s^2]."""
        return self._acceleration.copy()

    def advance(self, tau: Array, push: Array | None = None, is_powered: bool = True) -> Array:
        """Simulate one period; returns the mean torque of the motors, (n,) [Nm]. See ``ArmPhysics.advance``."""
        outside, offset = (np.zeros(self._n) if push is None else push), self._offset * float(is_powered)
        if self._elasticity is None:
            for _ in range(self._substeps):
                self._move_rigid(tau - offset + outside)
            return tau
        total = np.zeros(self._n)
        for _ in range(self._substeps):
            total += self._move_elastic(self._elasticity, tau * float(is_powered), offset, outside) / self._substeps
        return total

    def _evaluate_links(self) -> tuple[Array, Array, Array]:
        """Positions in the middle of the step, inertia without armature and ``C v + g`` there."""
        middle, speed = self.q + 0.5 * self._step * self.v, self.v + 0.5 * self._step * self._acceleration
        inertia = np.triu(pin.crba(self._model, self._data, middle))
        inertia += np.triu(inertia, 1).T
        return middle, inertia, pin.nonLinearEffects(self._model, self._data, middle, speed).copy()

    def _move_rigid(self, torque: Array) -> None:
        h, v = self._step, self.v
        _, inertia, bias = self._evaluate_links()
        inertia[np.diag_indices(self._n)] += self._armature
        momentum = inertia @ v + h * (torque - bias)
        inertia[np.diag_indices(self._n)] += h * self._viscous
        inverse = np.linalg.inv(inertia)
        self.v, self._impulse = solve_friction(inverse, inverse @ momentum, h * self._coulomb, self._impulse)
        self.q = self.q + 0.5 * h * (v + self.v)
        self._acceleration = (self.v - v) / h

    def _move_elastic(self, elasticity: JointElasticity, tau: Array, offset: Array, outside: Array) -> Array:
        h, v, (place, speed) = self._step, self.v, self._motors
        share = 1.0 if elasticity.actuator_lag == 0.0 else -np.expm1(-h / elasticity.actuator_lag)
        self._applied = self._applied + share * (tau - self._applied)
        motor = self._applied - elasticity.torque_damping * elasticity.stiffness * (speed - v)
        middle, inertia, bias = self._evaluate_links()
        spring = elasticity.stiffness * (place + 0.5 * h * speed - middle) + elasticity.damping * (speed - v)
        self.v = v + h * np.linalg.solve(inertia, spring - bias + outside)
        # Motors are coupled by springs only, so each finds its own friction.
        own = self._armature + h * self._viscous
        free, held = self._armature * speed + h * (motor - offset - spring), h * self._coulomb
        after = np.sign(free) * np.maximum(np.abs(free) - held, 0.0) / own
        self._motors = place + 0.5 * h * (speed + after), after
        self.q = self.q + 0.5 * h * (v + self.v)
        self._acceleration = (self.v - v) / h
        return motor


def solve_friction(inverse: Array, free: Array, largest: Array, guess: Array) -> tuple[Array, Array]:
    """Find ``v = free - A^-1 p`` with ``p_i in largest_i Sign(v_i)``.

    Joints slide or stick, which is changed until all obey the law; where that goes on in circles, by projected
    Gauss-Seidel, which always converges.

    Args:
        inverse: A^-1, positive definite, (n, n).
        free: Velocity without friction, (n,).
        largest: Largest impulses of friction, (n,).
        guess: Impulses to begin with, (n,).

    Returns:
        Velocity and impulses, (n,) each.
    """
    sticks = np.abs(guess) < largest
    p = np.where(sticks, 0.0, np.where(guess == 0.0, np.sign(free), np.sign(guess)) * largest)
    for _ in range(_PIVOTS):
        if sticks.any():
            held, slides = np.flatnonzero(sticks), np.flatnonzero(~sticks)
            rest = free[held] - inverse[np.ix_(held, slides)] @ p[slides]
            p[held] = np.linalg.solve(inverse[np.ix_(held, held)], rest)
        v = free - inverse @ p
        v[sticks] = 0.0
        too_strong, turns = sticks & (np.abs(p) > largest), ~sticks & (v * p < 0.0)
        if not (too_strong | turns).any():
            return v, p
        p[too_strong] = np.sign(p[too_strong]) * largest[too_strong]
        sticks = (sticks & ~too_strong) | turns
    p = np.clip(p, -largest, largest)
    v = free - inverse @ p
    for _ in range(_SWEEPS):
        moved = 0.0
        for i in range(len(p)):
            after = min(max(p[i] + v[i] / inverse[i, i], -largest[i]), largest[i])
            change = after - p[i]
            v, p[i], moved = v - inverse[:, i] * change, after, max(moved, abs(inverse[i, i] * change))
        if moved < _SLIP:
            break
    return v, p
