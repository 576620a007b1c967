"""Modes of the driver: which arm is driven, and how it is reached."""

from __future__ import annotations

from enum import Enum


class Mode(str, Enum):
    """Which arm is driven.

    ``MOCK``: simulated. ``HARDWARE``: a real one over the protocol of its controller. ``EMULATED``: the same with an
    emulated controller. ``ROS2_CONTROL``: any that takes effort commands over topics. ``MONITOR_ONLY``: any, nothing
    is commanded. ``EMULATED_...``: the same with emulated controllers.
    """

    MOCK = "mock"
    EMULATED = "emulated"
    HARDWARE = "hardware"
    ROS2_CONTROL = "ros2_control"
    EMULATED_ROS2_CONTROL = "emulated_ros2_control"
    MONITOR_ONLY = "monitor_only"
    EMULATED_MONITOR_ONLY = "emulated_monitor_only"

    @property
    def is_emulated(self) -> bool:
        """Whether an emulated controller is started with this mode."""
        return self in (Mode.EMULATED, Mode.EMULATED_ROS2_CONTROL, Mode.EMULATED_MONITOR_ONLY)

    @property
    def is_simulated(self) -> bool:
        """Whether no real arm can move: it is simulated, here or behind an emulated controller."""
        return self is Mode.MOCK or self.is_emulated

    @property
    def is_monitor(self) -> bool:
        """Whether nothing is ever commanded."""
        return self in (Mode.MONITOR_ONLY, Mode.EMULATED_MONITOR_ONLY)

    @property
    def is_ros2_control(self) -> bool:
        """Whether the arm is reached over topics, commanded or not; it publishes its own joint states then."""
        return self.is_monitor or self in (Mode.ROS2_CONTROL, Mode.EMULATED_ROS2_CONTROL)
