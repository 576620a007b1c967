"""Reads everything in a recording of a run but its samples: certified plans, the arm, its motions, its true load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import robot_hash
from sysid_ros.core.certification.certificate import CertificateMismatch, margin_rows, require_format
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.estimation.parameters.settings import TARGETS
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.rest_torque import RestTorque, WeighedBox
from sysid_ros.reports.recordings.mcap import DamagedRecording, McapMessage, holds, read_messages
from sysid_ros.reports.recordings.options import InvalidRecording
from sysid_ros.reports.recordings.readers import Watch, read_all
from sysid_ros.reports.result import MotionRecord

_STATUS, _TRUTH = "sysid_msgs/msg/DriverStatus", "sysid_msgs/msg/SimulationTruth"


@dataclass(frozen=True)
class RecordedRun:
    """A run of the suite.

    Attributes:
        plans: Certified plans, in the order they were made.
        starts: When the arm began to follow each that it followed, by plan_id [ns].
        truth: True parameters of the load of a simulated arm, about the frame of its last joint, (10,); else None.
    """

    plans: tuple[CertifiedPlan, ...] = ()
    starts: Mapping[str, int] = field(default_factory=dict)
    truth: NDArray[np.float64] | None = None

    def motions(self, start_ns: int) -> tuple[MotionRecord, ...]:
        """Return the plans that were followed, with times since the first sample [ns]."""
        followed = [(self.starts[plan.plan_id], plan) for plan in self.plans if plan.plan_id in self.starts]
        return tuple(
            MotionRecord(
                1e-9 * (stamp - start_ns),
                plan.trajectory,
                claims=plan.certificate.claims,
                margins=margin_rows(plan.certificate),
                issued=plan.certificate.issued_at - 1e-9 * start_ns,
            )
            for stamp, plan in sorted(followed, key=lambda one: one[0])
        )

    def fits(self, robot: RobotModel) -> bool:
        """Whether all plans were made for an arm as it is described here, with the same box of its parameters."""
        own = robot_hash(robot)
        return all(
            plan.certificate.robot_hash == own
            and np.array_equal(plan.boxes[0].lower, robot.theta_box.lower)
            and np.array_equal(plan.boxes[0].upper, robot.theta_box.upper)
            for plan in self.plans
        )


def read_run(path: Path) -> RecordedRun:
    """Read plans, their starts and the truth; nothing of them has to be there."""
    if not holds(path, _STATUS):
        return RecordedRun()
    plans: tuple[CertifiedPlan, ...] = ()
    starts: dict[str, int] = {}
    truth = None
    with suppress(DamagedRecording):  # of a file that is cut off, what comes before counts
        plans = tuple(read_plans(path)) if holds(path, PLAN) else ()
    durations = {plan.plan_id: float(plan.trajectory.duration) for plan in plans}
    with suppress(DamagedRecording):
        for entry in read_messages(path, {_STATUS, _TRUTH}):
            message = entry.message
            if entry.type_name == _TRUTH:
                truth = _truth(message)
            elif message.plan_id in durations and message.plan_id not in starts:
                stamp = 1_000_000_000 * message.header.stamp.sec + message.header.stamp.nanosec
                starts[message.plan_id] = stamp - round(1e9 * message.progress * durations[message.plan_id])
    return RecordedRun(plans, starts, truth)


def _truth(message: Any) -> NDArray[np.float64] | None:
    """Return the true parameters of a message in our order, (10,); None where nothing is attached."""
    if not message.valid:
        return None
    order = [list(message.names).index(name) for name in PARAMETER_NAMES]
    return np.array(message.payload, dtype=float)[order]


PLAN, ESTIMATE = "sysid_msgs/msg/CertifiedTrajectory", "sysid_msgs/msg/ParameterEstimate"
_TEXT_FILES = (".yaml", ".yml", ".json")


def read_plans(
    path: Path | str,
    watch: Watch = read_all,
    on_cut: Callable[[str], None] = lambda reason: None,
    on_estimate: Callable[[Box], None] = lambda box: None,
) -> list[CertifiedPlan]:
    """Read all certified plans of a file.

    Args:
        path: A recording with topics of ``CertifiedTrajectory``; a plan that was published again counts once. Or a YAML
            or JSON file with the ``to_dict()`` of a :class:`CertifiedPlan`, or a list of them.
        watch: Told how far a recording is, and may end it; the plans are those read by then.
        on_cut: Receives why a recording ends before its end; the plans are the ones until then.
        on_estimate: Told the box of each estimate of a payload in a recording, with its torque at rest.

    Returns:
        The plans in the order they are in the file.

    Raises:
        DamagedRecording: The recording cannot be read, or not as far as a plan.
        InvalidRecording: The file holds no certified plan.
        ModelError: A file of text is no YAML.
        SysidError: The entries make no plan.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidRecording(file, "the file", "missing", "a recording (.mcap) or certified plans (.yaml, .json)")
    entries = _read_text(file) if file.suffix in _TEXT_FILES else _read_recording(file, watch, on_cut, on_estimate)
    if not entries:
        raise InvalidRecording(file, "the certified plans", "none", "at least one")
    return [CertifiedPlan.from_dict(entry) for entry in entries]


def _plan_entries(message: Any, version: int) -> dict[str, object]:
    """Return the entries of a :class:`CertifiedPlan` in a message, as its ``to_dict`` gives them."""
    path, certificate = message.trajectory, message.certificate
    if list(certificate.joint_names) != list(path.joint_names):
        given = ", ".join(certificate.joint_names)
        raise InvalidRecording(PLAN, "the joints of the certificate", given, ", ".join(path.joint_names))
    coefficients = {item.name: np.reshape(item.data, tuple(item.shape)).tolist() for item in path.coefficients}
    arm, payload = (
        {end: list(getattr(message, f"{name}_{end}")) for end in ("lower", "upper")} for name in ("arm", "payload")
    )
    return {
        "format_version": version,
        "trajectory": {"kind": path.kind, "duration": path.duration, "coefficients": coefficients},
        "certificate": _certificate_entries(certificate) | {"format_version": version},
        "boxes": [arm, payload | _rest_entries(message)],
        "scene": _scene_entries(message.scene, len(path.joint_names)),
        "robot_name": message.robot_name,
    }


def _rest_entries(message: Any) -> dict[str, object]:
    """Return the torque at rest that belongs to the payload's box; nothing in recordings from before there were any."""
    names = list(getattr(message, "payload_rest_joint_names", ()))
    if not names:
        return {}
    fields = {"posture": "posture", "lower": "torque_lower", "upper": "torque_upper"}
    numbers = {name: list(getattr(message, f"payload_rest_{field}")) for name, field in fields.items()}
    return {"rest": {"joint_names": names, **numbers}}


def _certificate_entries(certificate: Any) -> dict[str, object]:
    fields: dict[str, Any] = dict(vars(certificate))
    fields |= {name: list(one) for name, one in fields.items() if isinstance(one, np.ndarray)}
    del fields["__msgtype__"]
    law, count = fields["control_law"], len(fields.pop("joint_names"))
    names = ("margin_limits", "margins", "margin_places", "margin_times")
    margins = zip(*(fields.pop(name) for name in names), strict=True)
    return fields | {
        "torque_squares": np.reshape(fields["torque_squares"], (-1, count)).tolist(),
        "predecessor": fields["predecessor"] or None,
        "control_law": {"name": law.name, "settings": dict(zip(law.setting_names, law.settings, strict=True))},
        "margins": [dict(zip(("limit", "value", "place", "time"), margin, strict=True)) for margin in margins],
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
    content = read_yaml(file)  # every JSON file is a YAML file
    entries = content if isinstance(content, list) else [content]
    if not all(isinstance(entry, Mapping) for entry in entries):
        raise InvalidRecording(file, "an entry", "no mapping", "certified plans as CertifiedPlan.to_dict() gives them")
    return entries


def _read_recording(
    file: Path, watch: Watch, on_cut: Callable[[str], None], on_estimate: Callable[[Box], None]
) -> list[Mapping[str, object]]:
    entries: dict[tuple[str, float], Mapping[str, object]] = {}
    try:
        for entry in read_messages(file, {PLAN, ESTIMATE}, watch):
            if entry.type_name == ESTIMATE:
                _read_estimate(entry.message, on_estimate)
                continue
            key, plan = _read_plan(file, entry)
            entries[key] = plan
    except DamagedRecording as damage:
        if not entries:
            raise
        on_cut(damage.reason)
    return list(entries.values())


def _read_estimate(message: Any, on_estimate: Callable[[Box], None]) -> None:
    """Pass on the box of an estimate of a payload; one without data or with an alarm states none."""
    if not list(message.names) or not message.is_consistent or message.target != TARGETS[0]:
        return
    box, names, rest = Box(np.array(message.lower), np.array(message.upper)), tuple(message.rest_joint_names), None
    if names:
        torque = Box(np.array(message.rest_torque_lower), np.array(message.rest_torque_upper))
        rest = RestTorque(names, np.array(message.rest_posture), torque)
    on_estimate(WeighedBox.of(box, rest))


def _read_plan(file: Path, entry: McapMessage) -> tuple[tuple[str, float], Mapping[str, object]]:
    if not entry.message.robot_name:
        stamp = 1e-9 * entry.stamp_ns
        raise InvalidRecording(file, f"a plan at {stamp:.3f} s on {entry.topic}", "without boxes and scene", "both")
    try:
        version = getattr(entry.message, "format_version", 1)
        require_format(version)
        return (entry.message.certificate.plan_id, entry.message.certificate.issued_at), _plan_entries(
            entry.message, version
        )
    except CertificateMismatch as mismatch:
        raise InvalidRecording(file, "a certified plan", mismatch.reason, "a plan of this format") from mismatch
    except (ValueError, SysidError) as error:
        raise InvalidRecording(file, "a certified plan", str(error), "arrays of lengths that fit") from error
