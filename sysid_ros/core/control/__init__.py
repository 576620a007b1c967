"""Control laws."""

from __future__ import annotations

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.baselines import GravityPid, PidSettings
from sysid_ros.core.control.gains import choose_gains
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.robust import ControlStatus, RobustController
from sysid_ros.core.control.settings import Controller, RobustSettings
from sysid_ros.core.model.robot import RobotModel

__all__ = [
    "CONTROLLERS",
    "ControlModel",
    "ControlStatus",
    "Controller",
    "GravityPid",
    "PidSettings",
    "RobustController",
    "RobustSettings",
    "build_controller",
]

_BANDWIDTH_PERIOD = 0.2
"""Bandwidth of the robust controller times period, as at 1 ms; more loses its phase margin to delay and hold [-]."""
CONTROLLERS = ("robust", "gravity_pid")
"""Names of the control laws."""


def build_controller(name: str, robot: RobotModel, period: float = 1e-3) -> Controller:
    """Build a control law with its default gains at the period of an arm, lower ones where its joints are elastic.

    Its description names the period, so no plan that was certified for another one is executed.

    Args:
        name: Name of the control law.
        robot: The arm.
        period: Time between two torques [s]; the delay may be as long.

    Raises:
        NoStableGains: The joints are so elastic that no gains keep their margins.
        ParameterOutOfRange: There is none of this name; lists the names.
    """
    if name == "robust":
        bandwidth = min(RobustSettings().bandwidth, _BANDWIDTH_PERIOD / period)
        settings = RobustSettings(bandwidth=bandwidth, period=period, delay=period)
        if robot.elasticity is not None:
            settings = choose_gains(robot, settings).settings
        return RobustController(robot, settings)
    if name == "gravity_pid":
        return GravityPid(robot, PidSettings(period=period))
    raise ParameterOutOfRange("controller", name, f"one of {', '.join(CONTROLLERS)}")
