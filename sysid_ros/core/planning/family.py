"""The family of Bezier trajectories a receding-horizon planner chooses from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.planning.base import State, Trajectory, joint_vector
from sysid_ros.core.planning.bezier import BezierTrajectory

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BezierFamily:
    """Trajectories ``q1 = q0 + k_center + k_range k`` with k in ``[-1, 1]^n``, each ending at rest.

    A plan is followed for ``planning_time``; then the next one takes over from its state there. The rest of every plan
    is a way to stop, so when no next plan is found the arm comes to rest on the one it follows.

    Attributes:
        k_center: Centre of the end positions relative to the start, (n,) [rad].
        k_range: Half range of the end positions, (n,) [rad], each above 0.
        duration: Duration t_f of a plan [s].
        planning_time: Time t_p until the next plan takes over [s].

    Raises:
        ParameterOutOfRange: A range is not positive, or not 0 < planning_time < duration.
        InvalidTrajectory: A vector is not finite or lengths differ.

    Source: SAFE-ID section V-A.
    """

    k_center: Array
    k_range: Array
    duration: float = 3.0
    planning_time: float = 1.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "k_center", joint_vector("k_center [rad]", self.k_center))
        object.__setattr__(self, "k_range", joint_vector("k_range [rad]", self.k_range, self.k_center.size))
        if not np.all(self.k_range > 0.0):
            raise ParameterOutOfRange("k_range [rad]", self.k_range.tolist(), "above 0")
        if not 0.0 < self.planning_time < self.duration < np.inf:
            allowed = f"above 0 and below the duration {self.duration}"
            raise ParameterOutOfRange("planning_time [s]", self.planning_time, allowed)

    def member(self, state: State, k: ArrayLike) -> BezierTrajectory:
        """The trajectory with parameter k (n,) from a state (position, velocity, acceleration), each (n,).

        Raises:
            ParameterOutOfRange: An entry of k is outside [-1, 1].
            InvalidTrajectory: An entry is not finite or a length differs.
        """
        parameter = joint_vector("k [-]", k, self.k_center.size)
        if not np.all(np.abs(parameter) <= 1.0):
            raise ParameterOutOfRange("k [-]", parameter.tolist(), "each -1 to 1")
        return BezierTrajectory.from_parameter(*state, parameter, self.duration, self.k_center, self.k_range)

    def takeover(self, trajectory: Trajectory) -> State:
        """State in which the plan after this one begins: position, velocity and acceleration, each (n,)."""
        return trajectory.evaluate(self.planning_time)
