"""Contents of the two FRI messages, independent of version and encoding."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from sysid_ros.drivers.arm import Array

JOINTS = 7
"""Every arm that speaks FRI has seven joints; A1 to A7 in this order."""


class SessionState(IntEnum):
    """State of the session, decided by the controller."""

    IDLE = 0
    MONITORING_WAIT = 1
    MONITORING_READY = 2
    COMMANDING_WAIT = 3
    COMMANDING_ACTIVE = 4

    @property
    def is_commanding(self) -> bool:
        """Whether the interpolated position is sent and commands are due."""
        return self >= SessionState.COMMANDING_WAIT


Quality = IntEnum("Quality", "POOR FAIR GOOD EXCELLENT", start=0)
"""Quality of the connection as the controller sees it; commanding needs GOOD."""
SafetyState = IntEnum(
    "SafetyState", "NORMAL_OPERATION SAFETY_STOP_LEVEL_0 SAFETY_STOP_LEVEL_1 SAFETY_STOP_LEVEL_2", start=0
)
"""Safety stop that is in force."""
OperationMode = IntEnum("OperationMode", "TEST_MODE_1 TEST_MODE_2 AUTOMATIC_MODE", start=0)
"""Operation mode of the cabinet."""
DriveState = IntEnum("DriveState", "OFF TRANSITIONING ACTIVE", start=0)
"""State of a drive."""
ControlMode = IntEnum("ControlMode", "POSITION CARTESIAN_IMPEDANCE JOINT_IMPEDANCE NO_CONTROL", start=0)
"""Control mode of the controller."""
CommandMode = IntEnum("CommandMode", "NO_COMMAND POSITION WRENCH TORQUE CARTESIAN_POSE", start=0)
"""Command that the controller expects of the client; the last one since 2.x."""
OverlayType = IntEnum("OverlayType", "NO_OVERLAY JOINT CARTESIAN", start=0)
"""Motion that the client's commands are added to."""
IoType = IntEnum("IoType", "BOOLEAN DIGITAL ANALOG", start=0)
"""Type of an input or output of the controller."""
IoDirection = IntEnum("IoDirection", "INPUT OUTPUT", start=0)
"""Direction of an input or output: an INPUT is set by the cell, an OUTPUT by the client."""


class IoValue(NamedTuple):
    """The value of one input or output of the controller."""

    name: str
    """The name the application on the controller gives it."""
    kind: IoType
    direction: IoDirection
    value: float
    """Its value: 0 or 1, a whole number from 0, or a number, by its kind."""


class Monitoring(NamedTuple):
    """A message of the controller. Joint arrays are (7,), A1 to A7; None where the message has no such field."""

    sequence: int
    reflected: int
    """Counter of the last command the controller has received."""
    state: SessionState
    """State of the session; IDLE where the message has none, as in KUKA's client."""
    quality: Quality
    send_period: float = 0.0
    """Time between messages [s]; 0 where the message has none."""
    receive_multiplier: int = 1
    """The client answers every how many messages."""
    joint_count: int | None = None
    safety: SafetyState | None = None
    drives: tuple[DriveState, ...] = ()
    operation_mode: int | None = None
    """Operation mode of the cabinet; the number on the wire."""
    control_mode: ControlMode | None = None
    stamp_ns: int | None = None
    """Time of the measurement [ns since the epoch of the controller's clock]."""
    q: Array | None = None
    """Measured positions [rad]."""
    tau: Array | None = None
    """Measured torques in the vendor's sign, the reaction's [Nm]."""
    q_commanded: Array | None = None
    """Last commanded positions (1.x only) [rad]."""
    tau_commanded: Array | None = None
    """Last commanded torques [Nm]."""
    tau_external: Array | None = None
    """Measured torques less the torques of the controller's own model, positive in joint direction [Nm]."""
    q_ipo: Array | None = None
    """Interpolated positions; only in the commanding states [rad]."""
    command_mode: CommandMode | None = None
    overlay: OverlayType | None = None
    """The motion that commands are added to."""
    tracking_performance: float = 0.0
    """1 is best; 0 in all states but COMMANDING_ACTIVE."""
    ios: tuple[IoValue, ...] = ()
    """Inputs and outputs that the application shares with the client, at most 10."""
    flange: Array | None = None
    """Position of the flange [mm] and its quaternion (w, x, y, z), in the base frame, (7,); since 2.x. Clients of this
    suite read neither this nor the next two."""
    redundancy: float | None = None
    """Position of A3, which distinguishes the postures with one flange pose [rad]; since 2.x."""
    force: Array | None = None
    """External force and torque on the flange, (6,) [N, Nm]; since 2.7."""

    @property
    def period(self) -> float:
        """Time between two messages that are to be answered [s]."""
        return self.send_period * self.receive_multiplier

    @property
    def stops(self) -> tuple[str, ...]:
        """Reasons why the arm cannot move, in words: a safety stop in force, drives that are not active."""
        found = []
        if self.safety not in (None, SafetyState.NORMAL_OPERATION):
            found.append(f"safety stop {self.safety.name}")
        if inactive := self.inactive_drives:
            found.append(f"drives not active: {inactive}")
        return tuple(found)

    @property
    def inactive_drives(self) -> str:
        """The drives that are not active, by joint, such as ``A2 OFF``; empty if there is none."""
        drives = enumerate(self.drives, 1)
        return ", ".join(f"A{k} {drive.name}" for k, drive in drives if drive is not DriveState.ACTIVE)


class Command(NamedTuple):
    """A message of the client. None where the message has no such field."""

    sequence: int
    reflected: int
    """Counter of the monitoring message it answers."""
    q: Array | None = None
    """Joint positions, (7,) [rad]."""
    tau: Array | None = None
    """Joint torques to lay over, (7,) [Nm]."""
    wrench: Array | None = None
    """Force and torque to lay over, (6,) [N, Nm]."""
    ios: tuple[IoValue, ...] = ()
    """Outputs to set, at most 10."""
