"""A certified plan with everything its certificate rests on, and how to check all of it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.certification.robot_hash import robot_hash
from sysid_ros.core.certification.settings import VerifierSettings
from sysid_ros.core.certification.verify import Verification, verify
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.serialization import trajectory_from_dict

Array = NDArray[np.float64]

_REST = 1e-6
"""Largest start velocity [rad/s] and acceleration [rad/s^2] that count as rest."""
_JOIN = 1e-6
"""Largest difference of states where one plan takes over from another [rad, rad/s, rad/s^2]."""
_TAKEOVER_STEP = 1e-3
"""Times of a plan at which another may take over are looked for in steps of this [s]."""


@dataclass(frozen=True)
class CertifiedPlan:
    """A plan, its certificate, and what the certificate is about.

    Attributes:
        trajectory: The plan.
        certificate: Its certificate, with the errors of the controller it allows for.
        boxes: Boxes of the arm's (14 n,) and the payload's (10,) parameters.
        scene: What surrounds the arm.
        robot_name: Name of the robot's settings.
        robot_hash: :func:`robot_hash` of the robot.
    """

    trajectory: Trajectory
    certificate: Certificate
    boxes: tuple[Box, Box]
    scene: Scene
    robot_name: str
    robot_hash: str

    def to_dict(self) -> dict[str, object]:
        """A dictionary of plain numbers, texts and lists, fit for JSON and YAML."""
        path = self.trajectory
        coefficients = {name: np.asarray(values).tolist() for name, values in path.coefficients.items()}
        return {
            "trajectory": {"kind": path.kind, "duration": float(path.duration), "coefficients": coefficients},
            "certificate": self.certificate.to_dict(),
            "boxes": [{"lower": box.lower.tolist(), "upper": box.upper.tolist()} for box in self.boxes],
            "scene": self.scene.to_dict(),
            "robot_name": self.robot_name,
            "robot_hash": self.robot_hash,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> CertifiedPlan:
        """The inverse of :meth:`to_dict`.

        Raises:
            ParameterOutOfRange: An entry is missing, unknown or of the wrong form.
            SysidError: A part cannot be made of its entry.
        """
        wrong = sorted(set(cls.__dataclass_fields__) ^ set(data))
        if wrong:
            raise ParameterOutOfRange("certified plan", wrong, "the entries that are missing or unknown")
        try:
            arm, payload = (Box(np.array(box["lower"], float), np.array(box["upper"], float)) for box in data["boxes"])
            return cls(
                trajectory_from_dict(**data["trajectory"]),
                Certificate.from_dict(data["certificate"]),
                (arm, payload),
                Scene.from_dict(data["scene"]),
                str(data["robot_name"]),
                str(data["robot_hash"]),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ParameterOutOfRange("certified plan", str(error), "the form that to_dict gives") from error


@dataclass(frozen=True)
class Recheck:
    """What checking a certified plan again has shown.

    Attributes:
        problems: What does not hold, in sentences; empty if the certificate holds.
        verification: What was proven; None if nothing could be.
    """

    problems: tuple[str, ...]
    verification: Verification | None


def recheck(robot: RobotModel, plan: CertifiedPlan, settings: VerifierSettings | None = None) -> Recheck:
    """Checks a certified plan again in full: that everything belongs together, and the proof itself.

    Args:
        robot: The robot it is for.
        plan: The plan.
        settings: How finely time is divided; the torque fraction and the brake time are those of the certificate.

    Returns:
        The problems, none if the certificate holds.
    """
    problems, certificate, found, own = [], plan.certificate, None, robot_hash(robot)
    for one in dict.fromkeys((plan.robot_hash, certificate.robot_hash)):
        if one != own:
            problems.append(
                f"it is for a robot {one[:12] or 'that is not stated'}, but '{robot.name}' here is "
                f"{own[:12]} (older versions of this package computed it otherwise)"
            )
    brake_time = certificate.brake_time
    # A certificate of samples says that it proves nothing; it need not name a brake time.
    if certificate.method == "interval" and not 0.0 < brake_time < np.inf:
        problems.append(f"the brake time of its certificate is {brake_time:g} s, so no stop of it is proven")
    try:
        certificate.matches(plan.trajectory, *plan.boxes, scene_hash=plan.scene.hash(), now=certificate.issued_at)
        found = verify(robot, plan.trajectory, plan.boxes, _errors(certificate), plan.scene, _settings(plan, settings))
        problems += _overstated(certificate, found, settings or VerifierSettings())
    except SysidError as error:
        problems.append(str(error))
    return Recheck(tuple(problems), found)


def check_sequence(plans: Sequence[CertifiedPlan]) -> list[tuple[str, ...]]:
    """Checks that plans follow each other: times of issue ascend, and each starts at rest or on the one before.

    Args:
        plans: The plans in the order they were issued.

    Returns:
        The problems of each.
    """
    problems: list[tuple[str, ...]] = []
    before: CertifiedPlan | None = None
    for plan in plans:
        here = []
        q, v, a = plan.trajectory.evaluate(0.0)
        is_moving = np.abs(v).max() > _REST or np.abs(a).max() > _REST
        if before is not None and plan.certificate.issued_at < before.certificate.issued_at:
            here.append("its certificate was issued before that of the plan before")
        if is_moving and (before is None or not _takes_over(before.trajectory, (q, v, a))):
            here.append("it starts in motion, but not in a state of the plan before")
        problems.append(tuple(here))
        before = plan
    return problems


@dataclass(frozen=True)
class _Errors:
    position: Array
    velocity: Array
    torque: Array


def _errors(certificate: Certificate) -> _Errors:
    for name in ("velocity_bound", "torque_bound"):
        if getattr(certificate, name) is None:
            raise ParameterOutOfRange(f"{name} of the certificate", "not stated", "stated, to check the plan again")
    return _Errors(certificate.tracking_bound, certificate.velocity_bound, certificate.torque_bound)


def _settings(plan: CertifiedPlan, settings: VerifierSettings | None) -> VerifierSettings:
    given, brake_time = settings or VerifierSettings(), plan.certificate.brake_time
    return VerifierSettings(
        **{
            **vars(given),
            "torque_fraction": plan.certificate.torque_fraction,
            "brake_times": (brake_time,) if 0.0 < brake_time < np.inf else (),
        }
    )


def _overstated(certificate: Certificate, found: Verification, settings: VerifierSettings) -> list[str]:
    """Margins that the certificate states larger than can be proven, and limits it does not mention."""
    problems = []
    for name, margin in found.margins.items():
        tolerance = settings.rate_tolerance if name.endswith("[-]") else settings.distance_tolerance
        stated = certificate.margins.get(name)
        if certificate.method == "interval" and stated is None:
            problems.append(f"its certificate has no margin '{name}'")
        elif certificate.method == "interval" and stated > margin + tolerance:
            problems.append(f"its certificate states {name} {stated:.4g}, proven is {margin:.4g}")
    return problems


def _takes_over(trajectory: Trajectory, state: tuple[Array, Array, Array]) -> bool:
    """Whether a trajectory passes a state at some time."""
    wanted = np.concatenate(state)

    def distances(times: Array) -> Array:
        return np.abs(np.concatenate(trajectory.sample(times), axis=1) - wanted).max(axis=1)

    times = np.append(np.arange(0.0, trajectory.duration, _TAKEOVER_STEP), trajectory.duration)
    for _ in range(4):
        found = distances(times)
        best = int(np.argmin(found))
        if found[best] <= _JOIN:
            return True
        near = times[max(best - 1, 0)], times[min(best + 1, times.size - 1)]
        times = np.linspace(*near, 201)
    return False
