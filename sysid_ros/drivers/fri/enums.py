"""Enumerations of the FRI messages; the numbers are those on the wire."""

from __future__ import annotations

from enum import Enum, IntEnum

JOINTS = 7
"""Every arm that speaks FRI has seven joints; A1 to A7 in this order."""


class FriVersion(Enum):
    """Versions of the interface that differ on the wire. 1.14 and 1.16 are as 1.15."""

    V1_15 = "1.15"
    V2_5 = "2.5"
    V2_7 = "2.7"

    @property
    def mirrors_in_monitoring(self) -> bool:
        """Whether the client returns the commanded position while it only monitors."""
        return self is FriVersion.V1_15


class SessionState(IntEnum):
    """State of the session, decided by the controller."""

    IDLE = 0
    MONITORING_WAIT = 1
    MONITORING_READY = 2
    COMMANDING_WAIT = 3
    COMMANDING_ACTIVE = 4

    @property
    def is_commanding(self) -> bool:
        """Whether the interpolated position is sent and commands are owed."""
        return self >= SessionState.COMMANDING_WAIT


class Quality(IntEnum):
    """Quality of the connection as the controller sees it; commanding needs GOOD."""

    POOR = 0
    FAIR = 1
    GOOD = 2
    EXCELLENT = 3


class SafetyState(IntEnum):
    """Safety stop that is in force."""

    NORMAL_OPERATION = 0
    SAFETY_STOP_LEVEL_0 = 1
    SAFETY_STOP_LEVEL_1 = 2
    SAFETY_STOP_LEVEL_2 = 3


class OperationMode(IntEnum):
    """Operation mode of the cabinet."""

    TEST_MODE_1 = 0
    TEST_MODE_2 = 1
    AUTOMATIC_MODE = 2


class DriveState(IntEnum):
    """State of a drive."""

    OFF = 0
    TRANSITIONING = 1
    ACTIVE = 2


class ControlMode(IntEnum):
    """What the controller does with the arm."""

    POSITION = 0
    CARTESIAN_IMPEDANCE = 1
    JOINT_IMPEDANCE = 2
    NO_CONTROL = 3


class CommandMode(IntEnum):
    """What the controller expects of the client; the last one since 2.x."""

    NO_COMMAND = 0
    POSITION = 1
    WRENCH = 2
    TORQUE = 3
    CARTESIAN_POSE = 4


class OverlayType(IntEnum):
    """What the client's commands are laid over."""

    NO_OVERLAY = 0
    JOINT = 1
    CARTESIAN = 2
