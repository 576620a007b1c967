"""Estimates and pictures of free-flying robots as messages, for topics and for recordings."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, Quaternion, Vector3
from nav_msgs.msg import Odometry
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from visualization_msgs.msg import MarkerArray

from sysid_msgs.msg import IdentifiabilityReport
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.links import LinkPose, LinkTree
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.drivers.arm import Array
from sysid_ros.ros.conversions.common import InvalidMessage, stamp_to_message
from sysid_ros.ros.markers import (
    FIXED_TRANSFORMS,
    RECORDED_PERIOD_NS,
    TRANSFORMS,
    MarkerBuilder,
    Write,
    write_transforms,
)
from sysid_ros.space.core.identification import FreeFlyerIdentification
from sysid_ros.space.core.robot import FreeFlyer
from sysid_ros.space.core.self_collision import SelfCollisionModel
from sysid_ros.space.simulation import FloatingState

WORLD = "world"
"""Frame of poses of the base."""
_PATH_POINTS = 200
_UNIT_TOLERANCE = 1e-3


def odometry_to_message(robot: FreeFlyer, measured: FloatingState, stamp: Time) -> Odometry:
    """Return the measured pose of the base in the world and its twist in its own axes."""
    x, y, z, w = pin.Quaternion(np.ascontiguousarray(measured.rotation)).coeffs().tolist()
    place, (linear, angular) = measured.position.tolist(), measured.twist.reshape(2, 3).tolist()
    message = Odometry(header=Header(stamp=stamp, frame_id=WORLD), child_frame_id=robot.base_link)
    message.pose.pose.position = Point(x=place[0], y=place[1], z=place[2])
    message.pose.pose.orientation = Quaternion(x=x, y=y, z=z, w=w)
    message.twist.twist.linear = Vector3(x=linear[0], y=linear[1], z=linear[2])
    message.twist.twist.angular = Vector3(x=angular[0], y=angular[1], z=angular[2])
    message.twist.covariance[::7] = np.repeat(robot.noise[:2] ** 2, 3)
    return message


def odometry_from_message(robot: FreeFlyer, message: Odometry) -> tuple[Array, Array, Array]:
    """Return twist (6,), rotation (3, 3) and position (3,) of the base.

    Raises:
        InvalidMessage: The twist is of another frame or not finite, or the orientation is no rotation.
    """
    if message.child_frame_id != robot.base_link:
        problem = f"is '{message.child_frame_id}', in whose axes the twist is; needed is the base, '{robot.base_link}'"
        raise InvalidMessage("Odometry", "child_frame_id", problem)
    linear, angular = message.twist.twist.linear, message.twist.twist.angular
    twist = np.array([linear.x, linear.y, linear.z, angular.x, angular.y, angular.z])
    if not np.all(np.isfinite(twist)):
        raise InvalidMessage("Odometry", "twist", f"is {twist.tolist()}; the momentum equation needs the base's twist")
    place, turn = message.pose.pose.position, message.pose.pose.orientation
    quaternion = np.array([turn.x, turn.y, turn.z, turn.w])
    length = float(np.linalg.norm(quaternion))
    if not abs(length - 1.0) < _UNIT_TOLERANCE:
        raise InvalidMessage("Odometry", "orientation", f"has length {length:.4g}; a unit quaternion is needed")
    rotation = pin.Quaternion(quaternion / length).toRotationMatrix()
    return twist, rotation, np.array([place.x, place.y, place.z])


def minimal_to_message(identification: FreeFlyerIdentification, stamp_ns: int) -> IdentifiabilityReport:
    """Return the minimal parameters with standard deviations and guaranteed bounds; ``text`` has values."""
    minimal, estimate, bounds = identification.minimal, identification.estimate, identification.bounds
    lines = (
        f"{minimal.names[k]} = {estimate.values[k]:.6g} +- {estimate.deviations[k]:.2g} {minimal.units[k]}"
        for k in range(minimal.count)
    )
    return IdentifiabilityReport(
        header=Header(stamp=stamp_to_message(stamp_ns), frame_id=identification.task.robot.base_link),
        method="data",
        base_parameters=[minimal.describe(k) for k in range(minimal.count)],
        base_names=list(minimal.names),
        base_units=list(minimal.units),
        determined=minimal.count,
        condition_number=float(identification.condition_number),
        deviations=estimate.deviations.tolist(),
        lower=[] if bounds is None else bounds.box.lower.tolist(),
        upper=[] if bounds is None else bounds.box.upper.tolist(),
        text="\n".join(lines),
    )


def draw_free_flyer(
    robot: FreeFlyer, q: Array, planned: CycloidTrajectory | None, held: ParameterEstimate | None = None
) -> MarkerArray:
    """Draw robot, paths and held object, all seen from the base.

    Spheres and boxes are the robot, lines the planned paths of its last bodies. An object is drawn by its inertia
    ellipsoid, its CoM, the box that its CoM lies in, and its mass with bounds. Stamps are zero, for the latest
    transform: stamps of a simulation that runs faster than the clock are ahead of it. ``q`` are the joint positions,
    (n,) [rad].
    """
    builder, model = MarkerBuilder(robot.base_link, Time()), SelfCollisionModel(robot)
    states = robot.tree.evaluate(q[None], np.zeros((1, robot.n)))
    for box in model.boxes:
        builder.add_box("arm", box.center, 2.0 * box.half_extents, box.rotation)
    for center, radius in model.spheres(states):
        builder.add_sphere("arm", center, radius)
    if planned is not None:
        way = planned.sample(np.linspace(0.0, planned.duration, _PATH_POINTS))[0][:, : robot.n]
        positions = robot.tree.evaluate(way, np.zeros_like(way)).positions
        for body in sorted(set(range(1, robot.tree.count)) - set(robot.tree.parents.tolist())):
            builder.add_path("plan", positions[:, body])
    if held is not None and held.is_consistent:
        body, placement = robot.frame(held.frame)
        rotation, origin = states.rotations[0, body], states.positions[0, body]
        builder.add_payload(held, rotation @ placement.rotation, origin + rotation @ placement.translation)
    return builder.array()


class FloatingPictures:
    """Description and transforms of one goal, written by a function."""

    def __init__(self, robot: FreeFlyer, write: Write):
        self._robot, self._write = robot, write
        model = pin.buildModelFromXML(robot.urdf)
        self._joints, self._links = list(model.names)[1:], LinkTree(model)
        self._last: dict[type, int] = {}

    def on_message(self, message: object, stamp_ns: int) -> None:
        """Add the pose of the base, or the positions of the joints."""
        kind = type(message)
        if not self._last:
            self._write("/robot_description", "std_msgs/msg/String", String(data=self._robot.urdf), stamp_ns)
            write_transforms(self._write, FIXED_TRANSFORMS, self._links.fixed, stamp_ns)
        elif 0 <= stamp_ns - self._last.get(kind, -RECORDED_PERIOD_NS) < RECORDED_PERIOD_NS:
            return
        self._last[kind] = stamp_ns
        if isinstance(message, Odometry):
            place, turn = message.pose.pose.position, message.pose.pose.orientation
            rotation = pin.Quaternion(turn.w, turn.x, turn.y, turn.z).normalized().matrix()
            position = np.array([place.x, place.y, place.z])
            base = LinkPose(message.header.frame_id, self._links.bodies[0], rotation, position)
            write_transforms(self._write, TRANSFORMS, [base], stamp_ns)
        elif isinstance(message, JointState):
            found = dict(zip(message.name, message.position, strict=False))
            if all(name in found for name in self._joints):
                q = np.array([found[name] for name in self._joints])
                write_transforms(self._write, TRANSFORMS, self._links.moving(q), stamp_ns)
