"""How an arm under ros2_control is connected."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange, require_ranges
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.velocity_estimate import VelocitySource


class Interface(Enum):
    """Which messages the arm speaks.

    ``FORWARD``: ``sensor_msgs/JointState`` of a joint_state_broadcaster, ``std_msgs/Float64MultiArray`` to a forward
    or group effort controller. ``LBR``: ``LBRState`` and ``LBRTorqueCommand`` of the package lbr_fri_idl.
    """

    FORWARD = "forward_command_controller"
    LBR = "lbr_fri_idl"


class TorqueCommand(Enum):
    """What an effort command is, that is what the arm or its controller adds to it.

    ``UNSET``: not stated; nothing is commanded then, because a wrong guess makes an arm jump. ``FULL``: the whole
    joint torque, nothing is added. ``OVERLAY_GRAVITY``: gravity is. ``OVERLAY``: gravity and Coriolis torques are.
    """

    UNSET = "unset"
    FULL = "full"
    OVERLAY_GRAVITY = "overlay_gravity"
    OVERLAY = "overlay"


_RANGES = {
    "connect_timeout": (0.1, 300.0),
    "session_timeout": (0.005, 10.0),
    "late_limit": (0.001, 10.0),
    "rest_time": (0.02, 5.0),
    "hold_time": (0.02, 5.0),
    "hold_drift": (1e-4, 0.1),
    "wait_time": (0.0, 10.0),
    "probe_torque": (0.0, 0.5),
    "rate_tolerance": (0.0, 0.5),
    "missing_share": (0.0, 0.5),
}


@dataclass(frozen=True)
class Ros2ControlSettings:
    """Settings of the connection.

    Attributes:
        interface: Which messages the arm speaks.
        period: Time between two states, and between two commands [s]; what is heard is compared with it.
        velocity: Where velocities come from.
        torque_command: What an effort command is.
        command_joints: Joints in the order of the commands, as in the parameter ``joints`` of the effort controller;
            empty to ask the controller for it.
        controller_load: Load that the arm itself compensates, about the frame of the last joint, (10,); None for none.
        connect_timeout: Longest time for each step of taking the arm over [s].
        session_timeout: Silence of the arm after which it counts as lost [s].
        late_limit: Time between two states beyond the period at which the arm brakes [s].
        rest_time: How long the resting arm is measured before it is taken over [s].
        hold_time: How long it must stay where it is under torque control before anything else [s].
        hold_drift: How far it may drift meanwhile [rad].
        wait_time: How long a cycle waits for its state [s]; 0 for two periods. More for an emulated arm, whose time
            stands still meanwhile.
        probe_torque: Largest torque of the test of the commands' sign on the last joint, over its limit [-]; the test
            ends when that joint has moved by 1 mrad. 0 leaves it out.
        rate_tolerance: How much the mean period that is heard may differ from ``period`` [-].
        missing_share: Share of states that may be missing within a second [-].
    """

    interface: Interface = Interface.FORWARD
    period: float = 0.001
    velocity: VelocitySource = VelocitySource.FEEDBACK
    torque_command: TorqueCommand = TorqueCommand.UNSET
    command_joints: tuple[str, ...] = ()
    controller_load: Array | None = None
    connect_timeout: float = 10.0
    session_timeout: float = 0.1
    late_limit: float = 0.02
    rest_time: float = 0.5
    hold_time: float = 0.2
    hold_drift: float = 0.02
    wait_time: float = 0.0
    probe_torque: float = 0.25
    rate_tolerance: float = 0.02
    missing_share: float = 0.05

    def __post_init__(self) -> None:
        require_ranges(self, _RANGES)
        if not 0.0005 <= self.period <= 0.02:
            raise ParameterOutOfRange("period [s]", self.period, "0.0005 to 0.02: states at 50 Hz to 2 kHz")
        if self.controller_load is not None and np.shape(self.controller_load) != (10,):
            raise ParameterOutOfRange("controller_load", np.shape(self.controller_load), "ten parameters")

    @property
    def cycle_wait(self) -> float:
        """How long a cycle waits for its state [s]."""
        return self.wait_time or 2.0 * self.period
