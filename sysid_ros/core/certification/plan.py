"""A certified plan with everything that its certificate covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.authentication import Authentication
from sysid_ros.core.certification.certificate import FORMAT_VERSION, Certificate, require_format
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.rest_torque import RestTorque, WeighedBox, rest_of
from sysid_ros.core.tracking_bound.bound import TrackingBound
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import trajectory_from_dict

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PlanStatistics:
    """Effort of a search for a plan, successful or not.

    Attributes:
        starts: Starts of the solver, of all searches.
        iterations: Iterations of the solver, of all starts.
        bounds: Tracking bounds that were computed.
        verifications: Proofs that were tried.
        seconds: Time spent by part: "search", "bound", "verify", "total", and until the "first" certified plan (0
            without); "proof" where it was proven throughout [s].
        rejections: Why candidates were rejected, in order.
        was_cut: Whether the time ran out before the search was over; the plan then depends on how busy the machine is.
        cost: Cost of the plan; infinite without a plan.
    """

    starts: int
    iterations: int
    bounds: int
    verifications: int
    seconds: Mapping[str, float]
    rejections: tuple[str, ...]
    was_cut: bool
    cost: float


@dataclass(frozen=True, eq=False)
class CertifiedPlan:
    """A plan, its certificate, and the subject of the certificate. Plans with one ``plan_id`` are the same.

    Attributes:
        trajectory: The path over time; it ends at rest.
        certificate: Its certificate, with the errors of the controller it allows for.
        boxes: Boxes of the arm's (14 n,) and the payload's (10,) parameters.
        scene: Environment of the arm.
        robot_name: Name of the robot's settings.
        handover_time: Time of this plan at which the next one may take over [s]; None where nothing will. Not recorded,
            as all that follows.
        information_gained: Gram matrix of the part until then, or of the whole plan without a handover, (10, 10).
        condition_number: Condition number of the earlier and the gained information together [-].
        bound: Tracking bound, which a plan that takes over inherits.
        proven: Likewise one that is proven throughout; None where the planner was not asked for it.
        statistics: Effort of the search.
        authentication: Who made it, for the driver.
    """

    trajectory: Trajectory
    certificate: Certificate
    boxes: tuple[Box, Box]
    scene: Scene
    robot_name: str
    handover_time: float | None = None
    information_gained: Array = field(default_factory=lambda: np.zeros((10, 10)), repr=False)
    condition_number: float | None = None
    bound: TrackingBound | None = field(default=None, repr=False)
    proven: TrackingBound | None = field(default=None, repr=False)
    statistics: PlanStatistics | None = field(default=None, repr=False)
    authentication: Authentication = field(default=Authentication(), repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CertifiedPlan) and other.plan_id == self.plan_id

    def __hash__(self) -> int:
        return hash(self.plan_id)

    @property
    def plan_id(self) -> str:
        """Identity of the plan, see :attr:`Certificate.plan_id`."""
        return self.certificate.plan_id

    @property
    def predecessor(self) -> str | None:
        """``plan_id`` of the plan it takes over from; None for a start from rest."""
        return self.certificate.predecessor

    @property
    def takeover_time(self) -> float:
        """Time of the predecessor at which it takes over [s]; 0 for a start from rest."""
        return self.certificate.takeover_time

    @property
    def time_until_next(self) -> float:
        """Return the time until another plan takes over, or to its end without one [s]."""
        return self.duration if self.handover_time is None else self.handover_time

    @property
    def duration(self) -> float:
        """Duration [s]."""
        return self.trajectory.duration

    def assumptions(self, robot: RobotModel) -> Assumptions:
        """Return the assumptions of the certificate, for the robot it is for.

        Raises:
            ParameterOutOfRange: The control law has no tracking bound.
        """
        law = RobustSettings.of_law(self.certificate.control_law)
        return Assumptions(robot, self.boxes, self.certificate.nominal_payload, self.scene, law)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary of plain numbers, texts and lists, fit for JSON and YAML."""
        path = self.trajectory
        coefficients = {name: np.asarray(values).tolist() for name, values in path.coefficients.items()}
        return {
            "format_version": FORMAT_VERSION,
            "trajectory": {"kind": path.kind, "duration": float(path.duration), "coefficients": coefficients},
            "certificate": self.certificate.to_dict(),
            "boxes": [_entries_of_box(box) for box in self.boxes],
            "scene": self.scene.to_dict(),
            "robot_name": self.robot_name,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> CertifiedPlan:
        """Make a plan from the result of :meth:`to_dict`.

        Raises:
            CertificateMismatch: It is recorded in another format.
            ParameterOutOfRange: An entry is missing, unknown or of the wrong form.
            SysidError: A part cannot be made of its entry.
        """
        require_format(data.get("format_version", 1))
        wanted = {"format_version", "trajectory", "certificate", "boxes", "scene", "robot_name"}
        wrong = sorted(wanted ^ set(data))
        if wrong:
            raise ParameterOutOfRange("certified plan", wrong, "the entries that are missing or unknown")
        entries: dict[str, Any] = dict(data)
        try:
            arm, payload = (_box_of_entries(box) for box in entries["boxes"])
            return cls(
                trajectory_from_dict(**entries["trajectory"]),
                Certificate.from_dict(entries["certificate"]),
                (arm, payload),
                Scene.from_dict(entries["scene"]),
                str(entries["robot_name"]),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ParameterOutOfRange("certified plan", str(error), "the form that to_dict gives") from error


def _entries_of_box(box: Box) -> dict[str, object]:
    entries: dict[str, object] = {"lower": box.lower.tolist(), "upper": box.upper.tolist()}
    rest = rest_of(box)
    if rest is not None:
        names, posture = list(rest.joint_names), rest.posture.tolist()
        entries["rest"] = {"joint_names": names, "posture": posture, **_entries_of_box(rest.torque)}
    return entries


def _box_of_entries(entries: Mapping[str, Any]) -> Box:
    unknown = set(entries) - {"lower", "upper", "rest"}
    if unknown:
        raise KeyError(f"unknown entries of a box: {', '.join(sorted(unknown))}")
    box, rest = Box(entries["lower"], entries["upper"]), entries.get("rest")
    if rest is None:
        return box
    names = tuple(str(name) for name in rest["joint_names"])
    return WeighedBox.of(box, RestTorque(names, rest["posture"], Box(rest["lower"], rest["upper"])))
