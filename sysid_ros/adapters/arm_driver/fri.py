"""Parameters of ``arm_driver`` for a KUKA LBR over FRI."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.drivers.kuka_fri.messages import FriVersion
from sysid_ros.drivers.kuka_fri.settings import PORTS, FriSettings, PositionSent, TorqueSetup
from sysid_ros.ros.parameters import parameter
from sysid_ros.ros.robot import RobotParameters

_FRI = FriSettings()


@dataclass(frozen=True)
class FriParameters(RobotParameters):
    """How the client is set up; it has to agree with the application on the controller."""

    robot_ip: str = parameter("", "", "Address of the controller; no other is heard. Empty hears all", read_only=True)
    fri_version: str = parameter(
        _FRI.version.value, "", "LBR: version of FRI on the controller; 1.14 and 1.16 are as 1.15",
        choices=tuple(v.value for v in FriVersion), read_only=True,
    )  # fmt: skip
    port_id: int = parameter(
        PORTS[0], "-", "LBR: UDP port of this computer, as in the controller's application", lower=1024, upper=65535,
        read_only=True,
    )  # fmt: skip
    send_period: float = parameter(
        _FRI.period, "s",
        "LBR: time between two commands, the controller's send period times its receive multiplier; plans are "
        "certified for 0.001", lower=0.001, upper=0.01, read_only=True,
    )  # fmt: skip
    torque_setup: str = parameter(
        _FRI.setup.value, "",
        "LBR: overlay: the controller compensates gravity and Coriolis torques, as KUKA's does; full: it adds nothing",
        choices=tuple(s.value for s in TorqueSetup), read_only=True,
    )  # fmt: skip
    position_sent: str = parameter(
        _FRI.position.value, "",
        "LBR: position sent with torques; with measured KUKA's friction compensation is off, "
        "at least at rest, with offset on",
        choices=tuple(p.value for p in PositionSent), read_only=True,
    )  # fmt: skip
    controller_load: str = parameter(
        "none", "", "LBR, ros2_control: load that the arm itself compensates: a name from config/payloads.yaml, "
        "a mass [kg], or none",
        read_only=True,
    )  # fmt: skip
    connect_timeout: float = parameter(
        _FRI.connect_timeout, "s", "Longest time for each step of taking a real arm over", lower=0.1, upper=50.0,
        read_only=True,
    )  # fmt: skip
    session_timeout: float = parameter(
        _FRI.session_timeout, "s", "Silence of the controller after which the arm counts as lost", lower=0.005,
        upper=10.0, read_only=True,
    )  # fmt: skip
    cycle_timeout: float = parameter(
        _FRI.wait_time, "s", "How long a cycle waits for the arm; 0 for two periods, of a Kinova three quarters of one",
        lower=0.0, upper=10.0,
        read_only=True,
    )  # fmt: skip

    def fri_settings(self, late_limit: float) -> FriSettings:
        """The settings of the client that these parameters stand for.

        Args:
            late_limit: Time between two messages beyond the period at which the arm brakes [s].
        """
        return FriSettings(
            version=FriVersion(self.fri_version),
            robot_ip=self.robot_ip,
            port=self.port_id,
            period=self.send_period,
            setup=TorqueSetup(self.torque_setup),
            position=PositionSent(self.position_sent),
            connect_timeout=self.connect_timeout,
            session_timeout=self.session_timeout,
            late_limit=late_limit,
            wait_time=self.cycle_timeout,
        )
