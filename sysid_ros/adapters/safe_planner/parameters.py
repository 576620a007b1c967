"""The parameters of ``safe_planner``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sysid_ros.core.certification.stop_model import VerifierSettings
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.planning.request import RecedingSettings
from sysid_ros.ros.parameters import parameter, parameters_from
from sysid_ros.ros.robot import FixedSceneParameters, FrameParameters


@dataclass(frozen=True)
class SafePlannerParameters(FrameParameters, FixedSceneParameters):
    """Parameters of the node ``safe_planner``."""

    autostart: bool = parameter(True, read_only=True)
    """Certify as soon as the node runs."""
    obstacles_timeout: float = parameter(0.0, "s", lower=0.0, upper=3600.0, read_only=True)
    """Longest time without a message on obstacles, from the start on; after it nothing is certified and a moving arm
    brakes. 0: no limit, obstacles stay until they are deleted."""
    verifier: VerifierSettings = parameters_from(VerifierSettings, read_only=True)
    planner: RecedingSettings = parameters_from(
        RecedingSettings,
        # Wide margins, so that a later plan with a less certain payload still finds room.
        defaults={"position_margin": 0.05, "distance_margin": 0.03},
        computed=("torque_fraction", "brake_time"),
        read_only=True,
    )

    @property
    def search(self) -> RecedingSettings:
        """Settings of the search, which keeps a little more of the torque limits than the proof asks for.

        Raises:
            ParameterOutOfRange: Nothing is left.
        """
        fraction = self.planner.torque_fraction * self.verifier.torque_fraction
        return replace(self.planner, torque_fraction=fraction, brake_time=self.verifier.brake_times[-1])

    def check(self) -> None:
        """Refuse settings that leave the search no torque or no stop."""
        super().check()
        if not self.verifier.brake_times:
            raise ParameterOutOfRange("parameter 'brake_times' [s]", (), "at least one time")
        _ = self.search
