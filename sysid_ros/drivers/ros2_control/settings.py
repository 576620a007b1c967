"""Connection of an arm under ros2_control."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import setting
from sysid_ros.drivers.arm import Array, ConnectionSettings
from sysid_ros.drivers.modes import TorqueCommand
from sysid_ros.drivers.velocity_estimate import VelocitySource


class Interface(Enum):
    """Messages of the arm.

    ``FORWARD``: ``sensor_msgs/JointState`` of a joint_state_broadcaster, ``std_msgs/Float64MultiArray`` to a forward
    or group effort controller. ``LBR``: ``LBRState`` and ``LBRTorqueCommand`` of the package lbr_fri_idl.
    ``BROADCASTER``: ``sysid_msgs/SampleBatch`` of the package sysid_broadcaster; it takes no commands.
    """

    FORWARD = "forward_command_controller"
    LBR = "lbr_fri_idl"
    BROADCASTER = "sample_broadcaster"


@dataclass(frozen=True, kw_only=True)
class Ros2ControlSettings(ConnectionSettings):
    """Settings of the connection."""

    interface: Interface = setting(Interface.FORWARD)
    """Messages of the arm: forward_command_controller: JointState and Float64MultiArray; lbr_fri_idl: LBRState and
    LBRTorqueCommand; sample_broadcaster: SampleBatch, to monitor only."""
    period: float = setting(0.001, "s", lower=0.0005, upper=0.02)
    """Time between two states, and between two commands; the measured period is compared with it."""
    velocity: VelocitySource = setting(VelocitySource.FEEDBACK)
    """Where velocities come from."""
    torque_command: TorqueCommand = setting(TorqueCommand.UNSET)
    """Meaning of an effort command: full: the whole torque; overlay_gravity, overlay: the arm adds gravity, or gravity
    and Coriolis torques; has to be set."""
    command_joints: tuple[str, ...] = setting(())
    """Joints in the order of the commands, as in the parameter joints of the effort controller; empty asks it."""
    controller_load: Array | None = None
    """Load that the arm itself compensates, about the frame of the last joint, (10,); None for none."""
    connect_timeout: float = setting(10.0, "s", lower=0.1, upper=50.0)
    rest_time: float = setting(0.5, "s", lower=0.02, upper=5.0, library_only=True)
    rate_tolerance: float = setting(0.02, "-", lower=0.0, upper=0.5, library_only=True)
    """Largest difference of the measured mean period from the one that is set."""
    missing_share: float = setting(0.05, "-", lower=0.0, upper=0.5, library_only=True)
    """Share of states that may be missing within a second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.controller_load is not None and np.shape(self.controller_load) != (10,):
            raise ParameterOutOfRange("controller_load", np.shape(self.controller_load), "ten parameters")

    @property
    def cycle_wait(self) -> float:
        """Longest time a cycle waits for its state [s]."""
        return self.wait_time or 2.0 * self.period
