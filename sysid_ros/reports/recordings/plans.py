"""Certified plans from a recording (MCAP) or a file (YAML, JSON); no ROS is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.common.errors import SysidError
from sysid_ros.reports.recordings.mcap import read_messages
from sysid_ros.reports.recordings.readers import InvalidRecording

PLAN = "sysid_msgs/msg/CertifiedTrajectory"
_TEXT_FILES = (".yaml", ".yml", ".json")
# Entries of a certificate and the fields of its message, where the names differ.
_RENAMED = {"start_q": "start_position", "start_v": "start_velocity", "start_a": "start_acceleration"}
_PLAIN = ("plan_hash", "box_hash", "scene_hash", "method", "claims", "issued_at", "expires_at", "brake_time")
_OPTIONAL = ("start_v", "start_a", "velocity_bound", "torque_bound")


def read_plans(path: Path | str) -> list[CertifiedPlan]:
    """Reads all certified plans of a file.

    Args:
        path: A recording with topics of ``CertifiedTrajectory``; a plan that was published again counts once. Or a YAML
            or JSON file with the ``to_dict()`` of a :class:`CertifiedPlan`, or a list of them.

    Returns:
        The plans in the order they are in the file.

    Raises:
        DamagedRecording: The recording cannot be read.
        InvalidRecording: The file holds no certified plan.
        SysidError: A plan cannot be made of what is there.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidRecording(file, "the file", "missing", "a recording (.mcap) or certified plans (.yaml, .json)")
    entries = _read_text(file) if file.suffix in _TEXT_FILES else _read_recording(file)
    if not entries:
        raise InvalidRecording(file, "the certified plans", "none", "at least one")
    return [CertifiedPlan.from_dict(entry) for entry in entries]


def plan_entries(message: Any) -> dict[str, object]:
    """The entries of a :class:`CertifiedPlan` in a message, as its ``to_dict`` gives them.

    Raises:
        InvalidRecording: Lengths of the message do not fit each other.
    """
    path, certificate, scene = message.trajectory, message.certificate, message.scene
    if list(certificate.joint_names) != list(path.joint_names):
        given = ", ".join(certificate.joint_names)
        raise InvalidRecording(PLAN, "the joints of the certificate", given, ", ".join(path.joint_names))
    coefficients = {item.name: np.reshape(item.data, tuple(item.shape)).tolist() for item in path.coefficients}
    return {
        "trajectory": {"kind": path.kind, "duration": path.duration, "coefficients": coefficients},
        "certificate": _certificate_entries(certificate),
        "boxes": [
            {"lower": list(message.arm_lower), "upper": list(message.arm_upper)},
            {"lower": list(message.payload_lower), "upper": list(message.payload_upper)},
        ],
        "scene": _scene_entries(scene, len(path.joint_names)),
        "robot_name": message.robot_name,
        "robot_hash": message.robot_hash,
    }


def _certificate_entries(certificate: Any) -> dict[str, object]:
    names = list(certificate.margin_names)
    entries: dict[str, object] = {name: getattr(certificate, name) for name in _PLAIN}
    for name in ("start_q", "tracking_bound", *_OPTIONAL):
        values = list(getattr(certificate, _RENAMED.get(name, name)))
        entries[name] = None if name in _OPTIONAL and not values else values
    entries["margins"] = dict(zip(names, certificate.margins, strict=True))
    entries["places"] = {
        name: place for name, place in zip(names, certificate.margin_places or [""] * len(names), strict=True) if place
    }
    entries["robot_hash"] = getattr(certificate, "robot_hash", "")
    entries["torque_fraction"] = certificate.torque_fraction
    entries["control"] = _control_entries(certificate) if getattr(certificate, "control_law", "") else None
    return entries


def _control_entries(certificate: Any) -> dict[str, object]:
    return {
        "law": certificate.control_law,
        "nominal_payload": list(certificate.nominal_payload),
        "rest_before": certificate.rest_before,
        "after": certificate.after,
        "after_time": certificate.after_time,
    }


def _scene_entries(scene: Any, last_body: int) -> dict[str, object]:
    count = len(scene.obstacle_names)
    boxes = zip(
        scene.obstacle_names,
        np.reshape(scene.obstacle_centers, (count, 3)).tolist(),
        np.reshape(scene.obstacle_half_extents, (count, 3)).tolist(),
        np.reshape(scene.obstacle_rotations, (count, 3, 3)).tolist(),
        strict=True,
    )
    keys = ("name", "center", "half_extents", "rotation")
    spheres = np.reshape(scene.payload_spheres, (-1, 4)).tolist()
    return {
        "obstacles": [dict(zip(keys, box, strict=True)) for box in boxes],
        "ground_height": scene.ground_height if scene.has_ground else None,
        "payload_spheres": [[last_body, *row] for row in spheres] if scene.has_payload_spheres else None,
        "clearance": scene.clearance,
    }


def _read_text(file: Path) -> list[Mapping[str, object]]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))  # every JSON file is a YAML file
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise InvalidRecording(file, "the content", str(error), "YAML or JSON") from error
    entries = content if isinstance(content, list) else [content]
    if not all(isinstance(entry, Mapping) for entry in entries):
        raise InvalidRecording(file, "an entry", "no mapping", "certified plans as CertifiedPlan.to_dict() gives them")
    return entries


def _read_recording(file: Path) -> list[Mapping[str, object]]:
    entries: dict[tuple[str, float], Mapping[str, object]] = {}
    for entry in read_messages(file):
        if entry.type_name != PLAN:
            continue
        if not entry.message.robot_name:
            stamp = 1e-9 * entry.stamp_ns
            raise InvalidRecording(file, f"a plan at {stamp:.3f} s on {entry.topic}", "without boxes and scene", "both")
        key = (entry.message.certificate.plan_hash, entry.message.certificate.issued_at)
        try:
            entries[key] = plan_entries(entry.message)
        except (ValueError, SysidError) as error:
            raise InvalidRecording(file, "a certified plan", str(error), "arrays of lengths that fit") from error
    return list(entries.values())
