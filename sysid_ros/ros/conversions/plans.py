"""Trajectories and their certificates."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from std_msgs.msg import Header

from sysid_msgs import msg as messages
from sysid_ros.core.planning.certificate import Certificate
from sysid_ros.core.planning.trajectory import Trajectory, trajectory_from_dict
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
        issued_at=float(certificate.issued_at),
        expires_at=float(certificate.expires_at),
    )


def certificate_from_message(message: messages.Certificate, joint_names: Sequence[str]) -> Certificate | None:
    """A received certificate in the robot's joint order; None when there is none.

    Raises:
        InvalidMessage: Joint names or the lengths of arrays do not fit.
        CertificateMismatch: Its method or times make no certificate.
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


def _optional(values: np.ndarray | None) -> array:
    return to_array("d", np.empty(0) if values is None else values, np.float64)
