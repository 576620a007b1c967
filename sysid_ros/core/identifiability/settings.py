"""What is measured, in which motions, and which parameters are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.spans import TOLERANCE
from sysid_ros.core.model.robot import FRICTION_NAMES

MEASURED = ("generalized_forces", "joint_torques", "base_wrench", "joints_and_base")
MOTIONS = ("dynamic", "static")


@dataclass(frozen=True)
class AnalysisSettings:
    """Settings of the structural analysis.

    Attributes:
        measured: ``generalized_forces``: the forces of all joints, with the wrench on a base that floats (RPNA);
            ``joint_torques``: of all joints but a floating base; ``base_wrench``: force and torque under the base
            and no joint torque; ``joints_and_base``: both.
        motion: ``dynamic``, or ``static`` for postures only (RPNA remark 8).
        joint_parameters: Which of ``F_c, F_v, I_a, beta`` of each joint are unknown too.
        known: Names of joints whose bodies' inertial parameters are known.
        base_body: With a sensor under a fixed base: whether the base itself counts among the unknown bodies.
        tolerance: Directions weaker than this count as zero, with lengths in units of the robot's typical link.

    Raises:
        ParameterOutOfRange: A setting is not one of those named.
    """

    measured: str = "generalized_forces"
    motion: str = "dynamic"
    joint_parameters: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    base_body: bool = True
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if self.measured not in MEASURED:
            raise ParameterOutOfRange("measured", self.measured, "one of " + ", ".join(MEASURED))
        if self.motion not in MOTIONS:
            raise ParameterOutOfRange("motion", self.motion, "one of " + ", ".join(MOTIONS))
        if not set(self.joint_parameters) <= set(FRICTION_NAMES):
            raise ParameterOutOfRange("joint_parameters", self.joint_parameters, "some of " + ", ".join(FRICTION_NAMES))
        if not 0.0 < self.tolerance < 0.1:
            raise ParameterOutOfRange("tolerance [-]", self.tolerance, "above 0, below 0.1")

    @property
    def sees_joints(self) -> bool:
        """Whether joint torques are measured."""
        return self.measured != "base_wrench"

    @property
    def sees_base(self) -> bool:
        """Whether the wrench under a fixed base, or on a floating one, is measured on its own account."""
        return self.measured in ("base_wrench", "joints_and_base")

    @property
    def is_static(self) -> bool:
        """Whether only postures count."""
        return self.motion == "static"
