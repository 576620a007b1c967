"""The driver of a simulated free-flying robot: admits and follows trajectories, brakes, measures.

Torques are not certified: joints follow motions within their limits and clear of the robot itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.inertia import require_physically_consistent
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.drivers.arm import Array
from sysid_ros.space.core.robot import FreeFlyer
from sysid_ros.space.core.self_collision import SelfCollisionModel
from sysid_ros.space.simulation import ConservationSimulation, FloatingState

_START_TOLERANCE = 1e-6
"""Largest distance of a trajectory's start from the robot's reference [rad]."""
_LIMIT_TOLERANCE = 1e-6
"""Share by which extrema may exceed a limit, for rounding."""


class FreeFlyerLoop:
    """The loop of the simulated robot, advanced by the owner of the clock.

    Args:
        simulation: The robot.
        clearance: Gap that bodies keep between each other [m].
        seed: Seed of the sensor noise.

    Attributes:
        drift: Largest change of momentum since the start or the last catch, which should be zero, (6,) [kg m/s, kg
            m^2/s].
        held: Inertial parameters of the object on the last body, about its joint, (10,); zeros without one.
    """

    def __init__(self, simulation: ConservationSimulation, clearance: float = 0.0, seed: int = 0):
        self.simulation, self.robot = simulation, simulation.robot
        self.drift, self.held = np.zeros(6), np.zeros(10)
        self._momentum = simulation.momentum()
        self._own = simulation.parameters.copy()
        self._clearance = clearance
        self._collisions = SelfCollisionModel(self.robot)
        self._random = np.random.default_rng(seed)
        self._trajectory: Trajectory | None = None
        self._hash = ""
        self._begin, self._rest = 0, simulation.state.q.copy()
        self._steps = 0

    @property
    def followed(self) -> str:
        """Hash of the trajectory that is being followed; empty while the robot holds its posture."""
        return self._hash if self._trajectory is not None else ""

    @property
    def is_braking(self) -> bool:
        """Whether it is coming to rest before the end of its trajectory."""
        return isinstance(self._trajectory, BrakedTrajectory)

    @property
    def progress(self) -> float:
        """Done part of the trajectory, 0 to 1 [-]; 0 while the robot holds."""
        return 0.0 if self._trajectory is None else min(self._elapsed / self._trajectory.duration, 1.0)

    @property
    def reference(self) -> Array:
        """Desired positions of joints and wheels, (n + W,) [rad]."""
        return self._rest if self._trajectory is None else self._trajectory.evaluate(self._elapsed)[0]

    @property
    def _elapsed(self) -> float:
        return (self._steps - self._begin) * self.simulation.timestep

    def admit(self, trajectory: Trajectory) -> None:
        """Begin to follow a trajectory of joints and wheels, (n + W) columns of cycloids, from the present reference.

        Raises:
            SysidError: It is another kind, leaves a limit, or another is being followed.
            PlanRejected: The robot would touch itself, or come too near.
        """
        if self._trajectory is not None:
            raise _refused("another one is being followed; brake, or wait for its end")
        if not isinstance(trajectory, CycloidTrajectory):
            raise _refused(f"it is of kind '{trajectory.kind}'; free-flying robots follow cycloids")
        require_within_limits(self.robot, trajectory)
        distance = np.abs(trajectory.knots[0] - self._rest)
        if distance.max() > _START_TOLERANCE:
            name = (*self.robot.joint_names, *self.robot.wheels.names)[int(distance.argmax())]
            raise _refused(f"{name} would jump: it starts {distance.max():.4f} rad from where the robot is")
        self._collisions.prove(
            CycloidTrajectory(trajectory.knots[:, : self.robot.n], trajectory.period), self._clearance
        )
        self._trajectory, self._hash, self._begin = trajectory, trajectory.hash(), self._steps

    def hold(self, parameters: Array) -> None:
        """Attach an object that has just moved along with the last body, or detach it.

        ``parameters`` are its inertial parameters about the joint of that body, (10,); zeros for none.

        Raises:
            SysidError: The robot is moving.
            NotPhysicallyConsistent: No body can have them.
        """
        if self._trajectory is not None:
            raise SysidError("the object is refused", "a trajectory is being followed; wait for its end")
        if np.any(parameters):
            require_physically_consistent(parameters, "object")
        total = self._own.copy()
        total[-10:] += parameters
        self.simulation.change(total)
        self.held = np.array(parameters, dtype=float)
        self._momentum, self.drift = self.simulation.momentum(), np.zeros(6)

    def brake(self) -> bool:
        """Come to rest on the path of the trajectory; return whether there was one."""
        if self._trajectory is None or isinstance(self._trajectory, BrakedTrajectory):
            return False
        left = self._trajectory.duration - self._elapsed
        period = getattr(self._trajectory, "period", 1.0)
        if left > 0.5 * period:
            self._trajectory = BrakedTrajectory(self._trajectory, self._elapsed, min(period, left))
        return True

    def advance(self, seconds: float) -> FloatingState:
        """Advance the robot by a multiple of the step of the simulation [s] and return its true state."""
        h = self.simulation.timestep
        for _ in range(max(1, round(seconds / h))):
            self._steps += 1
            if self._trajectory is not None and self._elapsed > self._trajectory.duration + 0.5 * h:
                self._rest = self._trajectory.evaluate(self._trajectory.duration)[0]
                self._trajectory = None
            if self._trajectory is None:
                zero = np.zeros_like(self._rest)
                self.simulation.step(self._rest, zero, zero)
            else:
                self.simulation.step(*self._trajectory.evaluate(self._elapsed))
        self.drift = np.maximum(self.drift, np.abs(self.simulation.momentum() - self._momentum))
        return self.simulation.state

    def measure(self) -> FloatingState:
        """Measure, with white noise of the sensors' standard deviations; encoders, wheel speeds and pose are exact."""
        state, (linear, angular, joint) = self.simulation.state, self.robot.noise
        n = self.robot.n
        deviations = np.concatenate([np.full(3, linear), np.full(3, angular)])
        v = state.v.copy()
        v[:n] += self._random.normal(0.0, 1.0, n) * joint
        twist = state.twist + self._random.normal(0.0, 1.0, 6) * deviations
        return replace(state, twist=twist, v=v)


def require_within_limits(robot: FreeFlyer, trajectory: CycloidTrajectory) -> None:
    """Require that cycloids of joints and wheels stay within the limits, by their exact extrema.

    Raises:
        SysidError: A limit is exceeded, or the number of columns is wrong.
    """
    names = (*robot.joint_names, *robot.wheels.names)
    if trajectory.n != len(names):
        raise _refused(f"it moves {trajectory.n} axes; the robot has {len(names)}: {', '.join(names)}")
    unbounded = np.full(robot.wheels.count, np.inf)
    lower, upper = trajectory.position_extrema()
    speed = np.abs(trajectory.velocity_extrema()).max(axis=0)
    change = np.abs(trajectory.acceleration_extrema()).max(axis=0)
    v_max = np.concatenate([robot.v_max, robot.wheels.speeds])
    a_max = np.concatenate([robot.a_max, unbounded])
    for k, name in enumerate(names):
        if k < robot.n and (lower[k] < robot.q_lower[k] - 1e-9 or upper[k] > robot.q_upper[k] + 1e-9):
            span = f"[{robot.q_lower[k]:g}, {robot.q_upper[k]:g}] rad"
            raise _refused(f"{name} goes from {lower[k]:.4f} to {upper[k]:.4f} rad; its limits are {span}")
        if speed[k] > v_max[k] * (1.0 + _LIMIT_TOLERANCE):
            raise _refused(f"{name} reaches {speed[k]:.4f} rad/s; its limit is {v_max[k]:g} rad/s")
        if change[k] > a_max[k] * (1.0 + _LIMIT_TOLERANCE):
            raise _refused(f"{name} reaches {change[k]:.4f} rad/s^2; its limit is {a_max[k]:g} rad/s^2")


def _refused(reason: str) -> SysidError:
    return SysidError("the trajectory is refused", reason)
