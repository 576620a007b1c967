"""Choices of command lines and driver settings: modes, versions, default ports."""

from __future__ import annotations

from enum import Enum

FRI_PORTS = (30200, 30209)
"""UDP ports that a KUKA controller accepts."""
KORTEX_PORT, KORTEX_PORT_REALTIME = 10000, 10001
"""Kinova Gen3: TCP port of all services and UDP port of the cyclic one."""
SCRIPT_PORT, RTDE_PORT = 30002, 30004
"""Controllers of Universal Robots: TCP ports of scripts and of real-time data exchange."""


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
        """Whether this mode starts an emulated controller."""
        return self in (Mode.EMULATED, Mode.EMULATED_ROS2_CONTROL, Mode.EMULATED_MONITOR_ONLY)

    @property
    def is_simulated(self) -> bool:
        """Whether no real arm can move: it is simulated, here or behind an emulated controller."""
        return self is Mode.MOCK or self.is_emulated

    @property
    def is_monitor(self) -> bool:
        """Whether the arm is never commanded."""
        return self in (Mode.MONITOR_ONLY, Mode.EMULATED_MONITOR_ONLY)

    @property
    def is_ros2_control(self) -> bool:
        """Whether the arm is reached over topics, commanded or not; it publishes its own joint states then."""
        return self.is_monitor or self in (Mode.ROS2_CONTROL, Mode.EMULATED_ROS2_CONTROL)


class FriVersion(Enum):
    """Versions of the interface that differ on the wire. 1.14 and 1.16 are as 1.15.

    Clients of 1.15 return the commanded position while they only monitor.
    """

    V1_15 = "1.15"
    V2_5 = "2.5"
    V2_7 = "2.7"


class TorqueCommand(Enum):
    """Meaning of an effort command: which torques the arm or its controller adds to it.

    ``UNSET``: not stated; nothing is commanded then, because a wrong guess makes an arm jump. ``FULL``: the whole
    joint torque, nothing is added. ``OVERLAY_GRAVITY``: gravity is. ``OVERLAY``: gravity and Coriolis torques are.
    """

    UNSET = "unset"
    FULL = "full"
    OVERLAY_GRAVITY = "overlay_gravity"
    OVERLAY = "overlay"


class Noise(Enum):
    """Use of the allowed errors.

    ``NONE``: ideal sensors without quantisation. ``UNIFORM``: independent errors, uniform within their bounds.
    ``ADVERSARIAL``: largest effort and velocity errors of constant sign per joint, an offset that grows with the
    effort. ``GAIN``: as before, but the effort error is a constant wrong gain plus a constant offset, the worst case
    for a mass.
    """

    NONE = "none"
    UNIFORM = "uniform"
    ADVERSARIAL = "adversarial"
    GAIN = "gain"


TRUTHS = ("nominal", "random", "corner")
"""How the simulated arm's own parameters are chosen inside their box."""
