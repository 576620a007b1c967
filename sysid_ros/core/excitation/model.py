"""Model and limits of an exciting motion: boxes of the parameters, tracking errors, collisions, checks at samples.

The checks evaluate worst-case torques and free distances at samples, for a search; they are no proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected, TrackingErrors, error_bound
from sysid_ros.core.collision.clearance import (
    CollisionModel,
    Obstacle,
    build_collision_model,
    displacements,
    pair_distances,
    sphere_centers,
)
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel, Sphere
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import slowdown_states

Array = NDArray[np.float64]

STOP_STEP = 0.01
"""Time between the positions on a path at which stops are checked [s]."""
_FASTEST = 0.995
"""Share of the speed limits that desired speed and tracking error may use together [-]."""
_STOP_POINTS = 9


@dataclass(frozen=True)
class TorqueDemand:
    """Worst-case torques of an arm over boxes of its and its payload's parameters.

    Attributes:
        robot: The arm.
        arm_box: Box of the arm's parameters, (14 n,).
        payload_box: Box of the payload's parameters, (10,).
        feedback: Torque the controller may add to the motion's, (n,) [Nm].
    """

    robot: RobotModel
    arm_box: Box
    payload_box: Box
    feedback: Array

    def evaluate(self, q: Array, v: Array, a: Array) -> Array:
        """Largest torque of any parameters in the boxes at states (N, n), (N, n) [Nm].

        Linear in the parameters, so ``|W center| + |W| radius`` is exact. Coulomb friction counts in the worst
        direction.
        """
        n = self.robot.n
        regressor = TorqueRegressor(self.robot, EffortMeaning.MOTOR_SIDE).evaluate(q, v, a, direction=np.zeros_like(v))
        payload = regressor[:, :, INERTIAL * (n - 1) : INERTIAL * n]
        nominal = regressor @ self.arm_box.center + payload @ self.payload_box.center
        spread = np.abs(regressor) @ self.arm_box.radius + np.abs(payload) @ self.payload_box.radius
        coulomb = self.robot.friction(np.maximum(np.abs(self.arm_box.lower), np.abs(self.arm_box.upper)))[:, 0]
        return np.abs(nominal) + spread + coulomb + self.feedback

    def check(self, kind: LimitKind, times: Array, states: tuple[Array, Array, Array], fraction: float = 1.0) -> float:
        """Smallest distance to a torque limit at the samples, relative to the limit [-].

        Args:
            kind: The limit.
            times: Sample times, (N,) [s].
            states: Positions, velocities and accelerations, each (N, n).
            fraction: Part of the limits that may be used [-].

        Raises:
            PlanRejected: A limit is broken.
        """
        limit = fraction * self.robot.limits.tau_held
        demand = self.evaluate(*states)
        index, joint = np.unravel_index(int(np.argmax(demand / limit)), demand.shape)
        if not demand[index, joint] <= limit[joint]:
            names = (self.robot.joint_names[int(joint)],)
            raise PlanRejected(kind, names, float(times[index]), float(demand[index, joint]), float(limit[joint]))
        return float(1.0 - demand[index, joint] / limit[joint])

    def check_stops(self, trajectory: Trajectory, brake_time: float, fraction: float = 1.0) -> float:
        """Smallest distance to a torque limit in stops that begin anywhere on a trajectory, relative to the limit [-].

        Args:
            trajectory: The motion; sampled every 10 ms, with nine points of every stop, rest among them.
            brake_time: Time to rest of the stops [s].
            fraction: Part of the limits that may be used [-].

        Raises:
            PlanRejected: A limit is broken.
        """
        times = np.linspace(0.0, trajectory.duration, int(np.ceil(trajectory.duration / STOP_STEP)) + 1)
        states = slowdown_states(trajectory.sample(times), brake_time, _STOP_POINTS)
        return self.check(LimitKind.BRAKING_TORQUE, np.tile(times, _STOP_POINTS), states, fraction)


def check_clearance(
    robot: RobotModel, collision: CollisionModel, error: Array, clearance: float, times: Array, q: Array
) -> dict[LimitKind, float]:
    """Compute the smallest free distances at the samples, tracking error taken off [m].

    Args:
        robot: The arm.
        collision: Pairs that must not touch.
        error: Largest position error, (n,) [rad].
        clearance: Distance to keep [m].
        times: Sample times, (N,) [s].
        q: Positions there, (N, n) [rad].

    Raises:
        PlanRejected: Something comes too close.
    """
    if not collision.spheres:
        return {}
    centers = sphere_centers(robot, collision.spheres, q)
    pairs_moved, moved = displacements(robot, collision, error)
    radii = np.array([sphere.radius for sphere in collision.spheres])
    links = [sphere.link for sphere in collision.spheres]
    margins: dict[LimitKind, float] = {}

    def keep(kind: LimitKind, distances: Array, names: Sequence[tuple[str, ...]]) -> None:
        index, which = np.unravel_index(int(np.argmin(distances)), distances.shape)
        smallest = float(distances[index, which])
        if not smallest >= clearance:
            raise PlanRejected(kind, names[int(which)], float(times[index]), smallest, clearance)
        margins[kind] = min(smallest - clearance, margins.get(kind, np.inf))

    if len(collision.pairs):
        free = pair_distances(centers, collision.spheres, collision.pairs) - pairs_moved
        keep(LimitKind.SELF_COLLISION, free, [(links[i], links[j]) for i, j in collision.pairs])
    own = radii[collision.movable] + moved
    points, names = centers[:, collision.movable], [(links[k],) for k in collision.movable]
    if collision.ground_height is not None and names:
        keep(LimitKind.GROUND, points[..., 2] - collision.ground_height - own, names)
    for obstacle in collision.obstacles:
        if names:
            keep(LimitKind.OBSTACLE, obstacle.distance(points) - own, [(*name, obstacle.name) for name in names])
    return margins


class NoExcitationFound(SysidError):
    """No exciting motion: none can begin at the start position, none keeps all limits, or none could be proven."""


def unusable_start(what: str, value: float, allowed: str) -> NoExcitationFound:
    """Return the error of a start position from which no motion can begin."""
    return NoExcitationFound(f"the start position cannot be used: {what} is {value:.4g}; expected {allowed}")


@dataclass(frozen=True)
class ExcitationModel:
    """Model of the arm, the payload and the controller for planning a motion.

    Attributes:
        robot: The arm.
        arm_box: Box of its parameters, (14 n,).
        payload_box: Box of the payload's parameters, (10,).
        payload: Nominal payload, (10,).
        tracking_position: Largest position error of the controller, (n,) [rad].
        tracking_velocity: Largest velocity error of the controller, (n,) [rad/s].
        collision: Spheres, pairs and obstacles.
        feedback_torque: Torque of the feedback on top of the model's, (n,) [Nm].
        slow_torque: Additional feedback torque at the samples of a motion, at any speed, (n,) or (N, n) [Nm]; for the
            search only, as are the next two.
        moving_torque: Additional torque at high speed, half of it at ``STOP_SPEED`` or all with ``moving_speed``.
        stop_torque: Further additional torque in stops from high speed, likewise.
        moving_speed: Mean squares of the speeds before the samples of a motion with these torques, (N,) [rad^2/s^2]; or
            None.
    """

    robot: RobotModel
    arm_box: Box
    payload_box: Box
    payload: Array
    tracking_position: Array
    tracking_velocity: Array
    collision: CollisionModel
    feedback_torque: Array
    slow_torque: Array
    moving_torque: Array
    stop_torque: Array
    moving_speed: Array | None = None

    @property
    def torque_demand(self) -> TorqueDemand:
        """The torques this model may need."""
        return TorqueDemand(self.robot, self.arm_box, self.payload_box, self.feedback_torque)

    @classmethod
    def of(
        cls,
        robot: RobotModel,
        arm_box: Box | None = None,
        payload_box: Box | None = None,
        payload: ArrayLike | None = None,
        tracking: TrackingErrors | None = None,
        obstacles: Sequence[Obstacle] = (),
        ground_height: float | None = None,
        payload_spheres: Sequence[Sphere] | None = None,
        feedback_torque: ArrayLike = 0.0,
    ) -> ExcitationModel:
        """Build a model; the robot's settings are the defaults.

        Args:
            robot: The arm.
            arm_box: Box of its parameters, (14 n,).
            payload_box: Box of the payload's parameters, (10,), such as the bounds of an estimate.
            payload: Nominal payload, (10,); by default the prior's if that lies in the box, else the middle of the box.
            tracking: Errors of the controller; none without it.
            obstacles: Boxes to keep away from.
            ground_height: Height of the ground in the base frame [m]; no ground without it.
            payload_spheres: Spheres that cover the load of the arm.
            feedback_torque: Torque the controller may add to the motion's, (n,) or one for all [Nm].

        Raises:
            ParameterOutOfRange: An error or a torque is negative or not finite.
        """
        prior = robot.payload_prior
        box = payload_box or prior.box
        nominal = prior.nominal if box.contains(prior.nominal) else box.center
        spheres = prior.spheres if payload_spheres is None else payload_spheres
        position, velocity = (0.0, 0.0) if tracking is None else (tracking.position, tracking.velocity)
        return cls(
            robot=robot,
            arm_box=arm_box or robot.theta_box,
            payload_box=box,
            payload=nominal if payload is None else np.array(payload, dtype=float),
            tracking_position=error_bound("tracking.position [rad]", position, robot.n),
            tracking_velocity=error_bound("tracking.velocity [rad/s]", velocity, robot.n),
            collision=build_collision_model(robot, spheres, obstacles, ground_height),
            feedback_torque=error_bound("feedback_torque [Nm]", feedback_torque, robot.n),
            slow_torque=np.zeros(robot.n),
            moving_torque=np.zeros(robot.n),
            stop_torque=np.zeros(robot.n),
        )


@dataclass(frozen=True)
class MotionLimits:
    """Limits of the n joints after all margins.

    Attributes:
        position_lower: Lower positions, (n,) [rad].
        position_upper: Upper positions, (n,) [rad].
        velocity: Speeds, (n,) [rad/s].
        acceleration: Accelerations, (n,) [rad/s^2].
        torque_usage: Share of the torque limits that the worst model may need [-].
        clearance: Distances between spheres, to ground and to obstacles [m].
    """

    position_lower: Array
    position_upper: Array
    velocity: Array
    acceleration: Array
    torque_usage: float
    clearance: float


def build_limits(model: ExcitationModel, q_start: Array, settings: ExcitationSettings) -> MotionLimits:
    """Build the limits of a motion from a start position.

    Raises:
        NoExcitationFound: The start position is not finite, of the wrong length or outside the position limits.
    """
    robot, joint_limits = model.robot, model.robot.limits
    if q_start.shape != (robot.n,):
        raise unusable_start("the number of positions", float(q_start.size), f"{robot.n}, one per joint")
    lower = joint_limits.q_lower + model.tracking_position
    upper = joint_limits.q_upper - model.tracking_position
    for name, value, low, high in zip(robot.joint_names, q_start, lower, upper, strict=True):
        if not (np.isfinite(value) and low <= value <= high):
            raise unusable_start(f"joint '{name}' [rad]", float(value), f"{low:.4g} to {high:.4g}")
    room = _FASTEST * joint_limits.v_max - model.tracking_velocity  # slow motions have more of it than they use
    velocity = np.minimum(settings.velocity_fraction * joint_limits.v_max, room)
    for name, value in zip(robot.joint_names, velocity, strict=True):
        if value <= 0.0:
            what = f"the speed left at joint '{name}' by the tracking error [rad/s]"
            raise unusable_start(what, float(value), "above 0")
    return MotionLimits(
        position_lower=np.maximum(lower, q_start - settings.amplitude),
        position_upper=np.minimum(upper, q_start + settings.amplitude),
        velocity=velocity,
        acceleration=settings.acceleration_fraction * joint_limits.a_max,
        torque_usage=settings.torque_fraction,
        clearance=settings.clearance,
    )
