"""Settings of the structural analysis: measurement, motions and unknown parameters."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.model.friction_names import FRICTION_NAMES

MEASURED = ("generalized_forces", "joint_torques", "base_wrench", "joints_and_base", "ballistic")
MOTIONS = ("dynamic", "static")
MASSLESS = ("as_modelled", "unknown")
"""Meaning of bodies without mass in a URDF: frames, or bodies of unknown inertia."""
WINDOW = 0.1
"""Length of a momentum window [s]."""
TOLERANCE = 1e-7
"""Directions weaker than this, relative to the strongest, count as zero.

It must lie well above the noise that a direction just accepted leaves behind when it is scaled to length one, about
1e-15 / 1e-7, and below the angles a URDF rounded to six decimals is wrong by, 3e-7.
"""


@dataclass(frozen=True)
class AnalysisSettings(Settings, library_only=True):
    """Settings of the structural analysis; a request to the node ``identifiability`` brings its own."""

    measured: str = setting("generalized_forces", choices=MEASURED)
    """generalized_forces: the forces of all joints, with the wrench on a base that floats (RPNA); joint_torques: of all
    joints but a floating base; base_wrench: force and torque under the base and no joint torque; joints_and_base:
    both; ballistic: of all joints, while nothing pushes a base that floats (RPNA remark 10)."""
    motion: str = setting("dynamic", choices=MOTIONS)
    """dynamic, or static for postures only (RPNA remark 8)."""
    joint_parameters: tuple[str, ...] = setting((), choices=FRICTION_NAMES)
    """Which of F_c, F_v, I_a, beta of each joint are unknown too."""
    known: tuple[str, ...] = setting(())
    """Names of joints whose bodies' inertial parameters are known."""
    base_body: bool = setting(True)
    """With a sensor under a fixed base: whether the base itself counts among the unknown bodies."""
    tolerance: float = setting(TOLERANCE, "-", above=0.0, below=0.1)
    """Directions weaker than this count as zero, with lengths in units of the robot's typical link."""

    @property
    def sees_joints(self) -> bool:
        """Whether joint torques are measured."""
        return self.measured != "base_wrench"

    @property
    def sees_base(self) -> bool:
        """Whether the wrench under a fixed base, or on a floating one, is measured on its own account."""
        return self.measured in ("base_wrench", "joints_and_base")

    @property
    def is_ballistic(self) -> bool:
        """Whether no force acts on the base."""
        return self.measured == "ballistic"

    @property
    def is_static(self) -> bool:
        """Whether motions are postures only."""
        return self.motion == "static"
