"""Settings of the Kortex client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.drivers.modes import KORTEX_PORT as PORT
from sysid_ros.drivers.modes import KORTEX_PORT_REALTIME as PORT_REALTIME
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


@dataclass(frozen=True)
class KortexSettings(Settings):
    """Settings of the client."""

    robot_ip: str = setting("192.168.1.10")
    """Address of the base."""
    port: int = setting(PORT, "-", lower=1, upper=65535)
    """TCP port of the base."""
    port_realtime: int = setting(PORT_REALTIME, "-", lower=1, upper=65535)
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
    """Longest time for each step of taking the arm over."""
    call_timeout: float = setting(1.0, "s", lower=0.05, upper=10.0, library_only=True)
    """Longest time for an answer over TCP."""
    session_timeout: float = setting(0.1, "s", lower=0.005, upper=10.0)
    """Timeout: time without a reply of the cyclic service after which the arm counts as lost."""
    late_limit: float = setting(0.02, "s", lower=0.001, upper=10.0)
    """Time between two fresh states beyond the period at which the arm brakes."""
    rest_time: float = setting(0.2, "s", lower=0.02, upper=5.0, library_only=True)
    """How long the resting arm is measured before it is taken over."""
    hold_time: float = setting(0.2, "s", lower=0.02, upper=5.0, library_only=True)
    """How long it must stay where it is under torque control before anything else."""
    hold_drift: float = setting(0.02, "rad", lower=1e-4, upper=0.1, library_only=True)
    """How far it may drift meanwhile."""
    wait_time: float = setting(0.0, "s", lower=0.0, upper=10.0)
    """How long a cycle waits for the reply; 0 for three quarters of a period, so that a lost one costs no more than its
    own cycle. More for an emulated base, whose time stands still meanwhile."""
    probe_torque: float = setting(0.25, "-", lower=0.0, upper=0.5, library_only=True)
    """Largest torque of the test of the commands' sign on the last joint, over its limit; the test ends when that joint
    has moved by 1 mrad. 0 leaves it out."""
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
