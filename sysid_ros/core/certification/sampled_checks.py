"""Checks trajectories at dense samples: what the verifier is compared with. It proves nothing.

Position, velocity and acceleration limits are checked over continuous time (extrema of the curves); torques and
distances at samples only, and every certificate says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.certificate import Certificate, box_hash
from sysid_ros.core.certification.motion_checks import (
    STOP_STEP,
    PlanRejected,
    TorqueDemand,
    TrackingErrors,
    check_clearance,
    check_positions,
    check_rates,
    error_bound,
)
from sysid_ros.core.certification.robot_hash import robot_hash
from sysid_ros.core.collision.clearance import Obstacle, build_scene_model, describe_unchecked_links, spheres_of_payload
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import RobotModel, Sphere
from sysid_ros.core.trajectories.base import InvalidTrajectory, Trajectory

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SampledCheckSettings:
    """Settings of the checks.

    Attributes:
        step: Time between samples [s].
        clearance: Distance to keep between spheres, to ground and to obstacles [m].
        torque_fraction: Part of the torque limits that may be used [-].
        feedback_torque: Torque the controller may add to what the motion needs, (n,) or one for all [Nm].
        ground_height: Height of the ground in the base frame [m]; None for no ground.
        payload_spheres: Spheres that cover what the arm carries; None takes those of the robot's payload prior.
        brake_times: Times to rest of stops along the path that are tried, ascending [s]; the first that passes is noted
            in the certificate, and a plan none of them can stop is rejected. Empty leaves stops unchecked.
        validity: Time a certificate is valid [s].

    Raises:
        ParameterOutOfRange: A setting is outside its range.
    """

    step: float = 0.002
    clearance: float = 0.0
    torque_fraction: float = 1.0
    feedback_torque: float | Array = 0.0
    ground_height: float | None = None
    payload_spheres: tuple[Sphere, ...] | None = None
    brake_times: tuple[float, ...] = field(default=(0.3, 0.5, 0.8, 1.2))
    validity: float = 60.0

    def __post_init__(self) -> None:
        feedback = np.asarray(self.feedback_torque, dtype=float)
        rising = all(a < b for a, b in zip(self.brake_times, self.brake_times[1:], strict=False))
        checks = (
            ("step [s]", self.step, 0.0 < self.step <= 0.002, "above 0, at most 0.002"),
            ("clearance [m]", self.clearance, 0.0 <= self.clearance <= 1.0, "0 to 1"),
            ("torque_fraction [-]", self.torque_fraction, 0.0 < self.torque_fraction <= 1.0, "above 0, at most 1"),
            ("feedback_torque [Nm]", feedback.tolist(), np.all((feedback >= 0.0) & (feedback < 1e4)), "0 to 10000"),
            ("brake_times [s]", self.brake_times, rising and min(self.brake_times, default=1.0) > 0.0, "ascending"),
            ("validity [s]", self.validity, 0.0 < self.validity <= 86400.0, "above 0, at most 86400"),
        )
        for name, value, is_allowed, allowed in checks:
            if not is_allowed:
                raise ParameterOutOfRange(name, value, allowed)


def certify_sampled(
    robot: RobotModel,
    trajectory: Trajectory,
    boxes: tuple[Box, Box],
    tracking_bound: TrackingErrors,
    obstacles: Sequence[Obstacle] = (),
    settings: SampledCheckSettings | None = None,
    now: float = 0.0,
) -> Certificate:
    """Checks a trajectory and all stops along its path, and returns the certificate.

    Args:
        robot: The arm.
        trajectory: The motion.
        boxes: Box of the arm's parameters (14 n,) and of the payload's (10,).
        tracking_bound: Largest position and velocity errors of the controller, each (n,) [rad, rad/s].
        obstacles: Boxes to keep away from.
        settings: How to check.
        now: Time of the loop's clock [s].

    Returns:
        The certificate, method "sampled", with the margins.

    Raises:
        PlanRejected: A limit is broken: which, where, when and by how much.
        InvalidTrajectory: The trajectory is for another number of joints.
        ParameterOutOfRange: The tracking bound is not finite or negative, or a box has the wrong length.
    """
    settings = settings or SampledCheckSettings()
    if trajectory.n != robot.n:
        raise InvalidTrajectory("the number of joints", trajectory.n, f"{robot.n}")
    scene = Scene(tuple(obstacles), settings.ground_height, settings.payload_spheres, settings.clearance)
    collision = build_scene_model(robot, scene)
    error = error_bound("tracking_bound.position [rad]", tracking_bound.position, robot.n)
    velocity_error = error_bound("tracking_bound.velocity [rad/s]", tracking_bound.velocity, robot.n)
    demand = _build_demand(robot, boxes, settings)

    times = np.linspace(0.0, trajectory.duration, int(np.ceil(trajectory.duration / settings.step)) + 1)
    states = trajectory.sample(times)
    q, v, a = states
    margins = {"position [rad]": check_positions(robot, trajectory, error, times, q)}
    margins["velocity [-]"] = check_rates("velocity", robot, trajectory.velocity_extrema(), velocity_error, times, v)
    margins["acceleration [-]"] = check_rates(
        "acceleration", robot, trajectory.acceleration_extrema(), np.zeros(robot.n), times, a
    )
    margins["torque [-]"] = demand.check("torque", times, states, settings.torque_fraction)
    margins.update(check_clearance(robot, collision, error, settings.clearance, times, q))
    brake_time = 0.0
    if settings.brake_times:
        brake_time, margins["braking torque [-]"] = _check_stops(demand, trajectory, settings)
    start_q, start_v, start_a = trajectory.evaluate(0.0)
    return Certificate(
        plan_hash=trajectory.hash(),
        box_hash=box_hash(*boxes),
        start_q=start_q,
        method="sampled",
        claims=_claims(robot, scene, settings),
        margins={name: value for name, value in margins.items() if np.isfinite(value)},
        tracking_bound=error,
        issued_at=now,
        expires_at=now + settings.validity,
        brake_time=brake_time,
        scene_hash=scene.hash(),
        start_v=start_v,
        start_a=start_a,
        velocity_bound=velocity_error,
        torque_bound=demand.feedback,
        torque_fraction=settings.torque_fraction,
        robot_hash=robot_hash(robot),
    )


def _build_demand(robot: RobotModel, boxes: tuple[Box, Box], settings: SampledCheckSettings) -> TorqueDemand:
    for name, box, length in (("arm", boxes[0], 14 * robot.n), ("payload", boxes[1], 10)):
        if box.lower.shape != (length,):
            raise ParameterOutOfRange(f"length of the {name}'s parameter box", box.lower.size, str(length))
    feedback = error_bound("feedback_torque [Nm]", settings.feedback_torque, robot.n)
    return TorqueDemand(robot, *boxes, feedback)


def _check_stops(demand: TorqueDemand, trajectory: Trajectory, settings: SampledCheckSettings) -> tuple[float, float]:
    """The shortest brake time all stops can be done in, and the margin of the torque in them."""
    *shorter, longest = settings.brake_times
    for brake_time in shorter:
        with contextlib.suppress(PlanRejected):
            return brake_time, demand.check_stops(trajectory, brake_time, settings.torque_fraction)
    return longest, demand.check_stops(trajectory, longest, settings.torque_fraction)


def _claims(robot: RobotModel, scene: Scene, settings: SampledCheckSettings) -> str:
    """One sentence of what was and what was not checked."""
    has_payload_spheres, obstacles = bool(spheres_of_payload(robot, scene)), len(scene.obstacles)
    sampled = ["torques of every parameter in the boxes"]
    sampled += [f"the same for stops along the path (every {1e3 * STOP_STEP:g} ms)"] if settings.brake_times else []
    missing = [] if settings.brake_times else ["stops along the path"]
    if robot.spheres or has_payload_spheres:
        sampled.append(f"collision spheres of arm{' and payload' if has_payload_spheres else ''} with each other")
        if settings.ground_height is not None:
            sampled.append("with the ground")
        if obstacles:
            sampled.append(f"with {obstacles} obstacle{'s' if obstacles > 1 else ''}")
        missing += describe_unchecked_links(robot)
        missing += [] if has_payload_spheres else ["collisions of the payload"]
    else:
        missing.append("collisions (no spheres are known)")
    if settings.ground_height is None:
        missing.append("the ground")
    if not obstacles:
        missing.append("obstacles (none are known)")
    return (
        "Position, velocity and acceleration limits hold at all times with the tracking error; at samples every "
        f"{1e3 * settings.step:g} ms only, which is not a proof, were checked: {', '.join(sampled)}; not checked: "
        f"{', '.join(missing) or 'nothing else that is known'}."
    )
