"""Trajectories and their certificates."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from std_msgs.msg import Header

from sysid_msgs import msg as messages
from sysid_ros.core.certification.certificate import AssumedControl, Certificate
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.robot import Sphere
from sysid_ros.core.trajectories.serialization import Trajectory, trajectory_from_dict
from sysid_ros.ros.conversions.common import (
    InvalidMessage,
    joint_order,
    joint_vector_from_message,
    stamp_to_message,
    to_array,
)

# Joint vectors a certificate may leave out: field of the message and of the certificate.
_OPTIONAL = {
    "start_velocity": "start_v",
    "start_acceleration": "start_a",
    "velocity_bound": "velocity_bound",
    "torque_bound": "torque_bound",
}


def trajectory_to_message(
    trajectory: Trajectory, joint_names: Sequence[str], stamp_ns: int = 0, frame: str = ""
) -> messages.Trajectory:
    """A trajectory for the wire.

    Args:
        trajectory: The trajectory.
        joint_names: Names of its n joints in its order.
        stamp_ns: When it was made [ns].
        frame: Base frame of the arm.
    """
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
    """A received trajectory. Its joints must be in the robot's order: its hash, and so its certificate, depend on it.

    Raises:
        InvalidMessage: Joint names, shapes or the hash do not fit.
        InvalidTrajectory: The coefficients make no trajectory.
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
    """A certificate for the wire; the joint names belong to its start position and tracking bound."""
    return messages.Certificate(
        plan_hash=certificate.plan_hash,
        box_hash=certificate.box_hash,
        scene_hash=certificate.scene_hash,
        robot_hash=certificate.robot_hash,
        joint_names=list(joint_names),
        start_position=to_array("d", certificate.start_q, np.float64),
        **{field: _optional(getattr(certificate, name)) for field, name in _OPTIONAL.items()},
        method=certificate.method,
        claims=certificate.claims,
        margin_names=list(certificate.margins),
        margins=to_array("d", list(certificate.margins.values()), np.float64),
        margin_places=[certificate.places.get(name, "") for name in certificate.margins],
        torque_fraction=float(certificate.torque_fraction),
        tracking_bound=to_array("d", certificate.tracking_bound, np.float64),
        brake_time=float(certificate.brake_time),
        **_control_fields(certificate.control),
        issued_at=float(certificate.issued_at),
        expires_at=float(certificate.expires_at),
    )


def _control_fields(control: AssumedControl | None) -> dict[str, object]:
    if control is None:
        return {}
    return {
        "control_law": control.law,
        "nominal_payload": to_array("d", control.nominal_payload, np.float64),
        "rest_before": float(control.rest_before),
        "after": control.after,
        "after_time": float(control.after_time),
    }


def _control_from(message: messages.Certificate) -> AssumedControl | None:
    if not message.control_law:
        return None
    payload = np.array(message.nominal_payload)
    return AssumedControl(message.control_law, payload, message.rest_before, message.after, message.after_time)


def certificate_from_message(message: messages.Certificate, joint_names: Sequence[str]) -> Certificate | None:
    """A received certificate in the robot's joint order; None when there is none.

    Raises:
        InvalidMessage: Joint names or the lengths of arrays do not fit.
        CertificateMismatch: Its method, times or nominal payload make no certificate.
    """
    if not message.plan_hash:
        return None
    if len(message.margin_names) != len(message.margins):
        raise InvalidMessage(
            "Certificate", "margins", f"has {len(message.margins)} entries for {len(message.margin_names)} names"
        )
    if len(message.margin_places) not in (0, len(message.margins)):
        raise InvalidMessage(
            "Certificate", "margin_places", f"has {len(message.margin_places)} entries for {len(message.margins)}"
        )

    def joints(field: str) -> np.ndarray:
        return joint_vector_from_message(
            "Certificate", field, message.joint_names, getattr(message, field), joint_names
        )

    return Certificate(
        plan_hash=message.plan_hash,
        box_hash=message.box_hash,
        scene_hash=message.scene_hash,
        robot_hash=message.robot_hash,
        start_q=joints("start_position"),
        **{name: joints(field) if len(getattr(message, field)) else None for field, name in _OPTIONAL.items()},
        method=message.method,
        claims=message.claims,
        margins=dict(zip(message.margin_names, (float(value) for value in message.margins), strict=True)),
        places={name: place for name, place in zip(message.margin_names, message.margin_places) if place},  # noqa: B905
        torque_fraction=message.torque_fraction,
        tracking_bound=joints("tracking_bound"),
        issued_at=message.issued_at,
        expires_at=message.expires_at,
        brake_time=message.brake_time,
        control=_control_from(message),
    )


def certified_to_message(
    trajectory: Trajectory, certificate: Certificate, joint_names: Sequence[str], stamp_ns: int = 0, frame: str = ""
) -> messages.CertifiedTrajectory:
    """A trajectory with its certificate for the wire."""
    return messages.CertifiedTrajectory(
        trajectory=trajectory_to_message(trajectory, joint_names, stamp_ns, frame),
        certificate=certificate_to_message(certificate, joint_names),
    )


def certified_from_message(
    message: messages.CertifiedTrajectory, joint_names: Sequence[str]
) -> tuple[Trajectory, Certificate | None]:
    """A received trajectory and its certificate, None where it has none; raises as the two parts do."""
    return (
        trajectory_from_message(message.trajectory, joint_names),
        certificate_from_message(message.certificate, joint_names),
    )


def certified_plan_to_message(
    plan: CertifiedPlan, joint_names: Sequence[str], stamp_ns: int = 0, frame: str = ""
) -> messages.CertifiedTrajectory:
    """A certified plan with all that its certificate rests on, so that whoever records it can check it again."""
    message = certified_to_message(plan.trajectory, plan.certificate, joint_names, stamp_ns, frame)
    message.robot_name, message.robot_hash = plan.robot_name, plan.robot_hash
    for name, box in zip(("arm", "payload"), plan.boxes, strict=True):
        setattr(message, f"{name}_lower", to_array("d", box.lower, np.float64))
        setattr(message, f"{name}_upper", to_array("d", box.upper, np.float64))
    message.scene = scene_to_message(plan.scene, stamp_ns, frame)
    return message


def scene_to_message(scene: Scene, stamp_ns: int = 0, frame: str = "", source: str = "") -> messages.Scene:
    """A scene for the wire.

    Args:
        scene: The scene.
        stamp_ns: When it was made [ns].
        frame: Base frame of the arm.
        source: Who says so.
    """

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
        source=source,
        hash=scene.hash(),
    )


def scene_from_message(message: messages.Scene, last_body: int) -> Scene:
    """A received scene.

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


def _optional(values: np.ndarray | None) -> array:
    return to_array("d", np.empty(0) if values is None else values, np.float64)
