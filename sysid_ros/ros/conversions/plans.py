"""Trajectories, their certificates, and scenes; obstacles as RViz and perception nodes publish them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
import pinocchio as pin
from std_msgs.msg import Header
from visualization_msgs.msg import Marker, MarkerArray

from sysid_msgs import msg as messages
from sysid_ros.core.certification.authentication import Authentication
from sysid_ros.core.certification.certificate import FORMAT_VERSION, Certificate, Margin
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.robot import Sphere
from sysid_ros.core.regressors.rest_torque import WeighedBox, rest_of
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import trajectory_from_dict
from sysid_ros.ros.conversions.common import (
    InvalidMessage,
    fields_of,
    joint_order,
    joint_vector_from_message,
    message_of,
    rest_fields,
    rest_from_message,
    stamp_to_message,
    to_array,
)

_BY_JOINT = ("tracking_bound", "velocity_bound", "torque_bound")
"""Bounds of a certificate with a number for each joint."""
_MARKERS = {Marker.CUBE: "CUBE", Marker.SPHERE: "SPHERE", Marker.CYLINDER: "CYLINDER"}
_UNIT = 1e-3
"""Largest distance of a quaternion's norm from 1."""

Key = tuple[str, int]


def trajectory_to_message(
    trajectory: Trajectory, joint_names: Sequence[str], stamp_ns: int = 0, frame: str = ""
) -> messages.Trajectory:
    """Convert a trajectory with the names of its joints, in its order, and the base frame of the arm."""
    coefficients = [
        messages.NamedArray(name=name, shape=list(np.shape(values)), data=to_array("d", values, np.float64))
        for name, values in trajectory.coefficients.items()
    ]
    return messages.Trajectory(
        header=Header(stamp=stamp_to_message(stamp_ns), frame_id=frame),
        joint_names=list(joint_names),
        kind=trajectory.kind,
        duration=float(trajectory.duration),
        coefficients=coefficients,
        hash=trajectory.hash(),
    )


def trajectory_from_message(message: messages.Trajectory, joint_names: Sequence[str]) -> Trajectory:
    """Convert a received trajectory. Its joints must be in the robot's order: its hash, thus its certificate, needs it.

    Raises:
        InvalidMessage: Joint names, shapes or the hash do not fit.
        ParameterOutOfRange: The coefficients make no trajectory.
    """
    order = joint_order("Trajectory", message.joint_names, joint_names)
    if np.any(np.diff(order) != 1):
        raise InvalidMessage(
            "Trajectory", "joint_names", f"is in another order than the robot's: {', '.join(joint_names)}"
        )
    coefficients = {}
    for item in message.coefficients:
        if len(item.data) != int(np.prod(item.shape)):
            raise InvalidMessage("Trajectory", item.name, f"has {len(item.data)} numbers for shape {tuple(item.shape)}")
        coefficients[item.name] = np.array(item.data, dtype=float).reshape(tuple(item.shape))
    trajectory = trajectory_from_dict(message.kind, message.duration, coefficients)
    if trajectory.n != len(joint_names):
        raise InvalidMessage(
            "Trajectory", "coefficients", f"is for {trajectory.n} joints; the robot has {len(joint_names)}"
        )
    if trajectory.hash() != message.hash:
        raise InvalidMessage(
            "Trajectory", "hash", f"is {message.hash[:12]!r}, but the content has {trajectory.hash()[:12]!r}"
        )
    return trajectory


def certificate_to_message(certificate: Certificate, joint_names: Sequence[str]) -> messages.Certificate:
    """Convert a certificate; the joint names belong to its bounds."""
    margins = certificate.margins
    return message_of(
        messages.Certificate,
        certificate,
        control_law=control_law_to_message(certificate.control_law),
        joint_names=list(joint_names),
        margin_limits=[margin.limit.value for margin in margins],
        margins=to_array("d", [margin.value for margin in margins], np.float64),
        margin_places=[margin.place for margin in margins],
        margin_times=to_array("d", [margin.time for margin in margins], np.float64),
    )


def certificate_from_message(message: messages.Certificate, joint_names: Sequence[str]) -> Certificate | None:
    """Convert a received certificate to the robot's joint order; None when there is none.

    Raises:
        InvalidMessage: Joint names, limits or the lengths of arrays do not fit.
        CertificateMismatch: Its ``plan_id`` does not match its content, or its times make no certificate.
        ParameterOutOfRange: Its nominal payload is none.
    """
    if not message.plan_id:
        return None
    for field in ("margins", "margin_places", "margin_times"):
        count = len(getattr(message, field))
        if count != len(message.margin_limits):
            raise InvalidMessage("Certificate", field, f"has {count} entries for {len(message.margin_limits)} limits")
    try:
        limits = [LimitKind(name) for name in message.margin_limits]
    except ValueError as error:
        raise InvalidMessage("Certificate", "margin_limits", str(error)) from error

    def joints(field: str) -> np.ndarray:
        return joint_vector_from_message(
            "Certificate", field, message.joint_names, getattr(message, field), joint_names
        )

    n, squares = len(joint_names), np.array(message.torque_squares, dtype=float)
    if not squares.size or squares.size % n:
        raise InvalidMessage("Certificate", "torque_squares", f"has {squares.size} entries for {n} joints")
    order = joint_order("Certificate", message.joint_names, joint_names)
    margins = zip(limits, message.margins, message.margin_places, message.margin_times, strict=True)
    given = fields_of(message, Certificate) | {field: joints(field) for field in _BY_JOINT}
    given |= {
        "control_law": control_law_from_message(message.control_law),
        "predecessor": message.predecessor or None,
        "torque_squares": squares.reshape(-1, n)[:, order],
        "margins": tuple(Margin(limit, float(value), place, float(time)) for limit, value, place, time in margins),
    }
    certificate = Certificate(**given)
    certificate.require_id(message.plan_id)
    return certificate


def control_law_to_message(law: ControlLaw) -> messages.ControlLaw:
    """Convert a control law."""
    return messages.ControlLaw(
        name=law.name,
        setting_names=[name for name, _ in law.settings],
        settings=to_array("d", [value for _, value in law.settings], np.float64),
    )


def control_law_from_message(message: messages.ControlLaw) -> ControlLaw:
    """Convert a received control law.

    Raises:
        InvalidMessage: There are not as many settings as names.
    """
    if len(message.setting_names) != len(message.settings):
        text = f"has {len(message.settings)} entries for {len(message.setting_names)} names"
        raise InvalidMessage("ControlLaw", "settings", text)
    return ControlLaw(message.name, tuple(zip(message.setting_names, map(float, message.settings), strict=True)))


def certified_to_message(
    trajectory: Trajectory, certificate: Certificate, joint_names: Sequence[str], stamp_ns: int = 0, frame: str = ""
) -> messages.CertifiedTrajectory:
    """Convert a trajectory with its certificate."""
    return messages.CertifiedTrajectory(
        format_version=FORMAT_VERSION,
        trajectory=trajectory_to_message(trajectory, joint_names, stamp_ns, frame),
        certificate=certificate_to_message(certificate, joint_names),
    )


def certified_from_message(
    message: messages.CertifiedTrajectory, joint_names: Sequence[str]
) -> tuple[Trajectory, Certificate | None]:
    """Convert a received trajectory and its certificate, None where it has none; raises as the two parts do."""
    return (
        trajectory_from_message(message.trajectory, joint_names),
        certificate_from_message(message.certificate, joint_names),
    )


def authentication_from_message(message: messages.CertifiedTrajectory) -> Authentication:
    """Return the stated author of a certificate, and its session of the driver."""
    return Authentication(message.session, bytes(message.authentication))


def certified_plan_to_message(
    plan: CertifiedPlan, joint_names: Sequence[str], stamp_ns: int = 0, frame: str = ""
) -> messages.CertifiedTrajectory:
    """Convert a certified plan with all that its certificate rests on, so that a recording can be re-verified."""
    message = certified_to_message(plan.trajectory, plan.certificate, joint_names, stamp_ns, frame)
    message.robot_name = plan.robot_name
    for name, box in zip(("arm", "payload"), plan.boxes, strict=True):
        setattr(message, f"{name}_lower", to_array("d", box.lower, np.float64))
        setattr(message, f"{name}_upper", to_array("d", box.upper, np.float64))
    for name, values in rest_fields(rest_of(plan.boxes[1]), "payload_rest").items():
        setattr(message, name, values)
    message.scene = scene_to_message(plan.scene, stamp_ns, frame)
    message.session, message.authentication = plan.authentication.session, list(plan.authentication.code)
    return message


def certified_plan_from_message(message: messages.CertifiedTrajectory, joint_names: Sequence[str]) -> CertifiedPlan:
    """Convert a received certified plan with all that its certificate rests on.

    Raises:
        InvalidMessage: It has no certificate, or boxes and scene are not given or do not fit.
        SysidError: As the parts do.
    """
    trajectory, certificate = certified_from_message(message, joint_names)
    if certificate is None or not message.robot_name:
        missing = "certificate" if certificate is None else "robot_name"
        raise InvalidMessage("CertifiedTrajectory", missing, "is empty; a plan with all it rests on is needed")
    arm, payload = (
        Box(np.array(getattr(message, f"{name}_lower")), np.array(getattr(message, f"{name}_upper")))
        for name in ("arm", "payload")
    )
    boxes = (arm, WeighedBox.of(payload, rest_from_message(message, "payload_rest")))
    scene = scene_from_message(message.scene, len(joint_names))
    given = authentication_from_message(message)
    return CertifiedPlan(trajectory, certificate, boxes, scene, message.robot_name, authentication=given)


def scene_to_message(
    scene: Scene, stamp_ns: int = 0, frame: str = "", source: str = "", fault: str | None = None
) -> messages.Scene:
    """Convert a scene in the base frame of the arm; ``source`` states it, a fault says why it is not known."""

    def numbers(field: str) -> array:
        rows = [getattr(obstacle, field).ravel() for obstacle in scene.obstacles]
        return to_array("d", np.concatenate(rows) if rows else np.empty(0), np.float64)

    rows = [[*sphere.center, sphere.radius] for sphere in scene.payload_spheres or ()]
    return messages.Scene(
        header=Header(stamp=stamp_to_message(stamp_ns), frame_id=frame),
        obstacle_names=[obstacle.name for obstacle in scene.obstacles],
        obstacle_centers=numbers("center"),
        obstacle_half_extents=numbers("half_extents"),
        obstacle_rotations=numbers("rotation"),
        has_ground=scene.ground_height is not None,
        ground_height=float(scene.ground_height or 0.0),
        has_payload_spheres=scene.payload_spheres is not None,
        payload_spheres=to_array("d", np.array(rows).ravel(), np.float64),
        clearance=float(scene.clearance),
        is_known=fault is None,
        fault=fault or "",
        source=source,
        hash=scene.hash(),
    )


def scene_from_message(message: messages.Scene, last_body: int) -> Scene:
    """Convert a received scene.

    Args:
        message: The message; an empty hash leaves the hash unchecked, as from a sender that cannot compute it.
        last_body: Index of the body that carries the payload, the number of joints.

    Raises:
        InvalidMessage: Lengths or the hash do not fit.
        ParameterOutOfRange: A number is not finite or out of range.
    """
    count = len(message.obstacle_names)
    arrays = {}
    for field, width in (("obstacle_centers", 3), ("obstacle_half_extents", 3), ("obstacle_rotations", 9)):
        values = np.array(getattr(message, field), dtype=float)
        if values.size != width * count:
            raise InvalidMessage("Scene", field, f"has {values.size} entries for {count} obstacles of {width}")
        arrays[field] = values.reshape(count, width)
    if len(message.payload_spheres) % 4:
        raise InvalidMessage("Scene", "payload_spheres", f"has {len(message.payload_spheres)} entries, not 4 for each")
    rows = np.array(message.payload_spheres, dtype=float).reshape(-1, 4)
    spheres = tuple(Sphere(last_body, row[:3], float(row[3]), "payload") for row in rows)
    scene = Scene(
        tuple(
            Obstacle(name, center, half, rotation.reshape(3, 3))
            for name, center, half, rotation in zip(message.obstacle_names, *arrays.values(), strict=True)
        ),
        message.ground_height if message.has_ground else None,
        spheres if message.has_payload_spheres else None,
        message.clearance,
    )
    if message.hash and scene.hash() != message.hash:
        raise InvalidMessage("Scene", "hash", f"is {message.hash[:12]!r}, but the content has {scene.hash()[:12]!r}")
    return scene


def obstacles_from_markers(
    message: MarkerArray, present: Mapping[Key, Obstacle], base_frame: str
) -> dict[Key, Obstacle]:
    """Return the obstacles after a message.

    Cubes are taken as they are, spheres and cylinders as the boxes around them. Markers are added, replaced and deleted
    by namespace and number, as RViz does it. Colours and life times mean nothing here: an obstacle stays until it is
    deleted.

    Args:
        message: The message.
        present: The obstacles before it, by namespace and number.
        base_frame: Frame in which all must be given.

    Raises:
        InvalidMessage: A marker has another frame or shape, or numbers that make no box. None of the message is used.
    """
    obstacles = dict(present)
    for marker in message.markers:
        key = key_of(marker)
        if marker.action == Marker.DELETEALL:
            obstacles.clear()
        elif marker.action == Marker.DELETE:
            obstacles.pop(key, None)
        elif marker.action == Marker.ADD:
            obstacles[key] = _obstacle(marker, base_frame)
        else:
            raise InvalidMessage("MarkerArray", _marker_name(marker), f"has the unknown action {marker.action}")
    return obstacles


def key_of(marker: Marker) -> Key:
    """Return the key of an obstacle: namespace and number."""
    return marker.ns, int(marker.id)


def _obstacle(marker: Marker, base_frame: str) -> Obstacle:
    name = _marker_name(marker)
    if marker.header.frame_id != base_frame:
        raise InvalidMessage("MarkerArray", name, f"is given in frame '{marker.header.frame_id}', not '{base_frame}'")
    if marker.type not in _MARKERS:
        raise InvalidMessage(
            "MarkerArray", name, f"is of type {marker.type}; expected {', '.join(sorted(_MARKERS.values()))}"
        )
    position, orientation, scale = marker.pose.position, marker.pose.orientation, marker.scale
    center = np.array([position.x, position.y, position.z])
    edges = np.array([scale.x, scale.y, scale.z])
    quaternion = np.array([orientation.x, orientation.y, orientation.z, orientation.w])
    if not np.all(np.isfinite([*center, *edges, *quaternion])):
        raise InvalidMessage("MarkerArray", name, "has a number that is not finite in pose or scale")
    if not np.all(edges > 0.0):
        raise InvalidMessage("MarkerArray", name, f"has the scale {edges.tolist()} m; each must be above 0")
    norm = float(np.linalg.norm(quaternion))
    if abs(norm - 1.0) > _UNIT:
        raise InvalidMessage("MarkerArray", name, f"has an orientation of norm {norm:.3g}; it must be 1")
    rotation = pin.Quaternion(quaternion / norm).toRotationMatrix()
    return Obstacle(name, center, 0.5 * edges, rotation)


def _marker_name(marker: Marker) -> str:
    return f"{marker.ns or 'obstacle'} {marker.id}"
