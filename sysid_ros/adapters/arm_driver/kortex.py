"""Parameters of ``arm_driver`` for a Kinova Gen3 over Kortex, with the names of ros2_kortex where it has them."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.adapters.arm_driver.fri import FriParameters
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings, StampSource, VelocitySource
from sysid_ros.ros.parameters import parameter

_KORTEX = KortexSettings()


@dataclass(frozen=True)
class KortexParameters(FriParameters):
    """How the client is set up."""

    username: str = parameter(_KORTEX.username, "", "Kinova: user of the base", read_only=True)
    password: str = parameter(_KORTEX.password, "", "Kinova: its password", read_only=True)
    port: int = parameter(_KORTEX.port, "-", "Kinova: TCP port of the base", lower=1, upper=65535, read_only=True)
    port_realtime: int = parameter(
        _KORTEX.port_realtime, "-", "Kinova: UDP port of the base", lower=1, upper=65535, read_only=True
    )
    session_inactivity_timeout_ms: int = parameter(
        round(1e3 * _KORTEX.session_inactivity_timeout), "ms", "Kinova: silence after which the base ends a session",
        lower=1000, upper=3600000, read_only=True,
    )  # fmt: skip
    connection_inactivity_timeout_ms: int = parameter(
        round(1e3 * _KORTEX.connection_inactivity_timeout), "ms",
        "Kinova: silence after which the base takes a connection for dead", lower=100, upper=60000, read_only=True,
    )  # fmt: skip
    velocity_source: str = parameter(
        _KORTEX.velocity.value, "",
        "Kinova, ros2_control: feedback: velocities the arm sends, within velocity_error of the robot file; positions: "
        "computed",
        choices=tuple(v.value for v in VelocitySource), read_only=True,
    )  # fmt: skip
    stamp_source: str = parameter(
        _KORTEX.stamps.value, "",
        "Kinova: clock: of this computer; frames: one period each, for an emulated arm whose time waits",
        choices=tuple(s.value for s in StampSource), read_only=True,
    )  # fmt: skip

    def kortex_settings(self, late_limit: float, robot_ip: str) -> KortexSettings:
        """The settings of the client that these parameters stand for.

        Args:
            late_limit: Time between two fresh states beyond the period at which the arm brakes [s].
            robot_ip: Address of the base.
        """
        return KortexSettings(
            robot_ip=robot_ip,
            port=self.port,
            port_realtime=self.port_realtime,
            username=self.username,
            password=self.password,
            session_inactivity_timeout=1e-3 * self.session_inactivity_timeout_ms,
            connection_inactivity_timeout=1e-3 * self.connection_inactivity_timeout_ms,
            velocity=VelocitySource(self.velocity_source),
            stamps=StampSource(self.stamp_source),
            connect_timeout=self.connect_timeout,
            session_timeout=self.session_timeout,
            late_limit=late_limit,
            wait_time=self.cycle_timeout,
        )
