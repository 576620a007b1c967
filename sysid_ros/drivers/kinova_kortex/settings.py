"""How the Kortex client is set up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sysid_ros.core.common.errors import ParameterOutOfRange, require_ranges
from sysid_ros.drivers.velocity_estimate import VelocitySource

PORT, PORT_REALTIME = 10000, 10001
"""TCP port of all services and UDP port of the cyclic one."""
REPLY_TIMEOUT = 0.003
"""How long an arm that has refused a command is given to tell its state [s]; as Kinova's examples wait for a reply."""


class StampSource(Enum):
    """Where stamps come from; Kortex sends none.

    ``CLOCK``: this computer's clock when the request was sent. ``FRAMES``: one period per frame; right only for an
    emulated base whose time waits for its client.
    """

    CLOCK = "clock"
    FRAMES = "frames"


_RANGES = {
    "port": (1, 65535),
    "port_realtime": (1, 65535),
    "session_inactivity_timeout": (1.0, 3600.0),
    "connection_inactivity_timeout": (0.1, 60.0),
    "connect_timeout": (0.1, 300.0),
    "call_timeout": (0.05, 10.0),
    "session_timeout": (0.005, 10.0),
    "late_limit": (0.001, 10.0),
    "rest_time": (0.02, 5.0),
    "hold_time": (0.02, 5.0),
    "hold_drift": (1e-4, 0.1),
    "wait_time": (0.0, 10.0),
    "probe_torque": (0.0, 0.5),
    "close_time": (0.0, 5.0),
}


@dataclass(frozen=True)
class KortexSettings:
    """Settings of the client.

    Attributes:
        robot_ip: Address of the base.
        port: TCP port of its services.
        port_realtime: UDP port of its cyclic service.
        username: User of the base.
        password: Its password.
        session_inactivity_timeout: Silence after which the base closes the session [s].
        connection_inactivity_timeout: Silence after which the base takes the connection for dead [s].
        velocity: Where velocities come from.
        stamps: Where stamps come from.
        connect_timeout: Longest time for each step of taking the arm over [s].
        call_timeout: Longest time for an answer over TCP [s].
        session_timeout: Silence of the cyclic service after which the arm counts as lost [s].
        late_limit: Time between two fresh states beyond the period at which the arm brakes [s].
        rest_time: How long the resting arm is measured before it is taken over [s].
        hold_time: How long it must stay where it is under torque control before anything else [s].
        hold_drift: How far it may drift meanwhile [rad].
        wait_time: How long a cycle waits for the reply [s]; 0 for three quarters of a period, so that a lost one costs
            no more than its own cycle. More for an emulated base, whose time stands still meanwhile.
        probe_torque: Largest torque of the test of the commands' sign on the last joint, over its limit [-]; the test
            ends when that joint has moved by 1 mrad. 0 leaves it out.
        close_time: Rest between the end of low-level servoing and the end of the sessions [s].
    """

    robot_ip: str = "192.168.1.10"
    port: int = PORT
    port_realtime: int = PORT_REALTIME
    username: str = "admin"
    password: str = "admin"
    session_inactivity_timeout: float = 60.0
    connection_inactivity_timeout: float = 2.0
    velocity: VelocitySource = VelocitySource.FEEDBACK
    stamps: StampSource = StampSource.CLOCK
    connect_timeout: float = 5.0
    call_timeout: float = 1.0
    session_timeout: float = 0.1
    late_limit: float = 0.02
    rest_time: float = 0.2
    hold_time: float = 0.2
    hold_drift: float = 0.02
    wait_time: float = 0.0
    probe_torque: float = 0.25
    close_time: float = 0.5

    period = 0.001
    """Time between two requests [s]; the base wants 1 kHz."""

    def __post_init__(self) -> None:
        require_ranges(self, _RANGES)
        if not self.robot_ip:
            raise ParameterOutOfRange("robot_ip", "", "the address of the base")

    @property
    def reply_wait(self) -> float:
        """How long a cycle waits for its reply; one that comes later counts as lost [s]."""
        return self.wait_time or 0.75 * self.period
