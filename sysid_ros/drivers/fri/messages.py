"""What the two FRI messages say, independent of version and encoding."""

from __future__ import annotations

from typing import NamedTuple

from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.fri.enums import (
    CommandMode,
    ControlMode,
    DriveState,
    OverlayType,
    Quality,
    SafetyState,
    SessionState,
)


class Monitoring(NamedTuple):
    """A message of the controller. Joint arrays are (7,), A1 to A7; None where the message has no such field.

    Attributes:
        sequence: Its counter.
        reflected: Counter of the last command the controller has seen.
        state: State of the session; IDLE where the message does not say, as KUKA's client takes it.
        quality: Quality of the connection.
        send_period: Time between messages [s]; 0 where the message does not say.
        receive_multiplier: The client answers every how many messages.
        joint_count: Number of joints the controller says it has.
        safety: Safety stop in force.
        drives: State of each drive.
        operation_mode: Operation mode of the cabinet; the number on the wire.
        control_mode: What the controller does with the arm.
        stamp_ns: When it was measured [ns since the epoch of the controller's clock].
        q: Measured positions [rad].
        tau: Measured torques in the vendor's sign, which is that of the reaction [Nm].
        q_commanded: Last commanded positions (1.x only) [rad].
        tau_commanded: Last commanded torques [Nm].
        tau_external: Measured torques less those of the controller's own model, positive in joint direction [Nm].
        q_ipo: Interpolated positions; only in the commanding states [rad].
        command_mode: What the controller expects.
        overlay: What commands are laid over.
        tracking_performance: 1 is best; 0 in all states but COMMANDING_ACTIVE.
    """

    sequence: int
    reflected: int
    state: SessionState
    quality: Quality
    send_period: float = 0.0
    receive_multiplier: int = 1
    joint_count: int | None = None
    safety: SafetyState | None = None
    drives: tuple[DriveState, ...] = ()
    operation_mode: int | None = None
    control_mode: ControlMode | None = None
    stamp_ns: int | None = None
    q: Array | None = None
    tau: Array | None = None
    q_commanded: Array | None = None
    tau_commanded: Array | None = None
    tau_external: Array | None = None
    q_ipo: Array | None = None
    command_mode: CommandMode | None = None
    overlay: OverlayType | None = None
    tracking_performance: float = 0.0

    @property
    def period(self) -> float:
        """Time between two messages that are to be answered [s]."""
        return self.send_period * self.receive_multiplier

    @property
    def stops(self) -> tuple[str, ...]:
        """What keeps the arm from moving, in words: a safety stop in force, drives that are not active."""
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
    """A message of the client. None where the message has no such field.

    Attributes:
        sequence: Its counter.
        reflected: Counter of the monitoring message it answers.
        q: Joint positions, (7,) [rad].
        tau: Joint torques to lay over, (7,) [Nm].
        wrench: Force and torque to lay over, (6,) [N, Nm].
    """

    sequence: int
    reflected: int
    q: Array | None = None
    tau: Array | None = None
    wrench: Array | None = None
