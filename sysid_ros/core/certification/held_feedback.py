"""The feedback of an arm that is held, for its continuous torque.

While a posture is held, the torque is S, needed at rest, and a feedback of at most D that averages out but for
friction: its mean square is at most ``S^2 + 2 S m + D^2``, with a bound m of the mean feedback. The momentum p = H v
of the joints changes by the torque less gravity, friction, offset and the change of kinetic energy T with the posture:

    integral (tau - S) ds = [p + F_v (q - q_d)] + integral (Coulomb friction + g(q) - g(q_d) - dT/dq) ds.

With errors of positions and velocities up to E and V the bracket is an impulse that does not grow with time, and the
rest small. Let the bodies beyond joint j be stretched out from its axis, with the first moment f_j and the second S_j:

    |d g_j / d q_k| <= |g| f_m,      |p_j| <= sum_k (S_j S_k)^1/2 V_k + I_a V_j,
    |d T / d q_j| <= sum_k S_k^1/2 V_k  sum_k S_m^1/2 V_k,      m = max(j, k):

the second derivative of the place of a mass by two joints is the cross product of one's axis with the velocity that the
outer one gives it, and then Cauchy and Schwarz over the masses. Springs in gears are internal forces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import TrackingErrors
from sysid_ros.core.model.robot import INERTIAL, JointLimits
from sysid_ros.core.tracking_bound.between import BodySizes, chain_lengths

Array = NDArray[np.float64]

WINDOW = 60.0
"""Time over which the mean square is bounded [s]."""
_ROOM_TO_LEAVE = 0.7
"""Share of the peak torque that planned holds may need, feedback included: the next plan has to brake, too [-]."""


@dataclass(frozen=True)
class HeldFeedback:
    """Bounds of the feedback's torque while a posture is held.

    Attributes:
        largest: D, (n,) [Nm], with the Coulomb friction where S has it: what varies at rest.
        mean: m, (n,) [Nm]: over a time t its integral is at most ``m t + impulse``. Infinite where no bound is known.
        impulse: (n,) [Nms].
    """

    largest: Array
    mean: Array
    impulse: Array

    @classmethod
    def bound(cls, assumptions: Assumptions, errors: TrackingErrors) -> HeldFeedback:
        """Bound the feedback by the equations above, for errors of the controller while it holds a posture.

        A torque acts late, which an impulse of the torque limit covers.
        """
        robot, law = assumptions.robot, assumptions.control_law
        n, position, velocity, feedback = robot.n, errors.position, errors.velocity, errors.torque
        if not all(robot.pin_model.joints[k + 1].shortname().startswith("JointModelR") for k in range(n)):
            return cls(feedback, np.full(n, np.inf), np.zeros(n))  # a slide has no lever
        arm, payload = (np.maximum(np.abs(box.lower), np.abs(box.upper)) for box in assumptions.boxes)
        arm[robot.inertial_slice(n)] += payload
        coulomb, viscous, armature, _ = robot.friction(arm).T
        sizes, levers = BodySizes.of(np.append(arm[: INERTIAL * n], armature), n), chain_lengths(robot)
        beyond = np.triu(np.ones((n, n)))
        first = (beyond * (sizes.mass * levers + sizes.first)).sum(axis=1)
        second = (beyond * (sizes.mass * levers**2 + 2.0 * sizes.first * levers + sizes.second)).sum(axis=1)
        outer = np.maximum.outer(np.arange(n), np.arange(n))
        gravity = float(np.linalg.norm(robot.pin_model.gravity.linear)) * (first[outer] @ position)
        speed = float(np.sqrt(second) @ velocity)
        late, bent, bending = law.period + law.delay + np.zeros(n), np.zeros(n), np.zeros(n)
        if (gears := robot.elasticity) is not None:  # with errors of links, motors are off by the deflection besides
            late += gears.actuator_lag + gears.torque_damping / (1.0 - gears.stiffness_error)
            bent, bending = robot.deflection, gears.deflection_rate
        momentum = np.sqrt(second) * speed + armature * (velocity + bending) + viscous * (position + bent)
        mean = coulomb + gravity + speed * (np.sqrt(second[outer]) @ velocity)
        return cls(feedback, mean, 2.0 * (momentum + late * robot.limits.tau_max))

    def squares(self, rest: Array) -> tuple[Array, Array]:
        """Bound the mean square of the torque with one of up to ``rest`` (n,) [Nm] at rest.

        Returns:
            The mean square over a minute, (n,) [Nm^2]; and what a part of a minute may have more, (n,) [Nm^2 s].
        """
        peak = (rest + self.largest) ** 2
        steady = np.where(rest > 0.0, self.mean + self.impulse / WINDOW, 0.0)
        mean = rest**2 + 2.0 * rest * steady + self.largest**2
        return np.minimum(peak, mean), np.where(mean < peak, 2.0 * rest * self.impulse, 0.0)

    def largest_rest(self, limits: JointLimits) -> Array:
        """Return the torque at rest that may be planned with, (n,) [Nm]: held for ever, with this feedback."""
        steady = self.mean + self.impulse / WINDOW
        room = np.maximum(limits.tau_held**2 - self.largest**2, 0.0)
        # Of the root of S^2 + 2 S m = room, in a form that an infinite m leaves zero.
        averaged = room / (steady + np.sqrt(steady**2 + room))
        is_lower = limits.tau_continuous < limits.tau_max
        peak = np.where(is_lower, _ROOM_TO_LEAVE * limits.tau_max, limits.tau_max) - self.largest
        return np.maximum(limits.tau_held - self.largest, np.minimum(np.where(is_lower, averaged, 0.0), peak))
