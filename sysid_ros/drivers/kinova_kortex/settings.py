"""Settings of the Kortex client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import setting
from sysid_ros.drivers.arm import ConnectionSettings
from sysid_ros.drivers.modes import KORTEX_PORT, KORTEX_PORT_REALTIME
from sysid_ros.drivers.velocity_estimate import VelocitySource

REPLY_TIMEOUT = 0.003
"""Timeout for the state of an arm that has refused a command [s]; as in Kinova's examples."""


class StampSource(Enum):
    """Source of stamps; Kortex sends none.

    ``CLOCK``: this computer's clock when the request was sent. ``FRAMES``: one period per frame; right only for an
    emulated base whose time waits for its client.
    """

    CLOCK = "clock"
    FRAMES = "frames"


@dataclass(frozen=True, kw_only=True)
class KortexSettings(ConnectionSettings):
    """Settings of the client."""

    robot_ip: str = setting("192.168.1.10")
    """Address of the base."""
    port: int = setting(KORTEX_PORT, "-", lower=1, upper=65535)
    """TCP port of the base."""
    port_realtime: int = setting(KORTEX_PORT_REALTIME, "-", lower=1, upper=65535)
    """UDP port of the base, of its cyclic service."""
    username: str = setting("admin")
    """User of the base."""
    password: str = setting("admin")
    """Password of that user."""
    session_inactivity_timeout: float = setting(60.0, "s", lower=1.0, upper=3600.0)
    """Timeout after which the base ends a session without requests."""
    connection_inactivity_timeout: float = setting(2.0, "s", lower=0.1, upper=60.0)
    """Timeout after which the base takes a connection without requests for dead."""
    velocity: VelocitySource = setting(VelocitySource.FEEDBACK)
    """Where velocities come from: feedback: the arm sends them, within velocity_error of the robot file; positions:
    they are computed."""
    stamps: StampSource = setting(StampSource.CLOCK)
    """Where stamps come from: clock: of this computer; frames: one period each, for an emulated arm, whose time
    waits."""
    connect_timeout: float = setting(5.0, "s", lower=0.1, upper=50.0)
    call_timeout: float = setting(1.0, "s", lower=0.05, upper=10.0, library_only=True)
    """Longest time for an answer over TCP."""
    close_time: float = setting(0.5, "s", lower=0.0, upper=5.0, library_only=True)
    """Rest between the end of low-level servoing and the end of the sessions."""

    period = 0.001
    """Time between two requests [s]; the base wants 1 kHz."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.robot_ip:
            raise ParameterOutOfRange("robot_ip", "", "the address of the base")

    @property
    def reply_wait(self) -> float:
        """Time that a cycle waits for its reply; a later one counts as lost [s]."""
        return self.wait_time or 0.75 * self.period
