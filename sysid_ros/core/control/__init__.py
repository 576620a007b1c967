"""Control laws."""

from __future__ import annotations

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.baselines import (
    ONLINE_MODEL,
    GravityPid,
    OnlineModelController,
    OnlineModelSettings,
    PidSettings,
)
from sysid_ros.core.control.gains import default_gains
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.robust import RobustController
from sysid_ros.core.control.settings import ROBUST, Controller, RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.online_model.least_squares import Observation

__all__ = [
    "CONTROLLERS",
    "ControlModel",
    "Controller",
    "GravityPid",
    "OnlineModelController",
    "PidSettings",
    "RobustController",
    "RobustSettings",
    "build_controller",
]

CONTROLLERS = (ROBUST, "gravity_pid", ONLINE_MODEL)
"""Names of the control laws; a tracking bound is proven for the first alone."""


def build_controller(name: str, robot: RobotModel, period: float = 1e-3) -> Controller:
    """Build a control law with its default gains at the period of an arm, lower ones where its joints are elastic.

    Its description names the period, so plans certified for another one are not executed.

    Args:
        name: Name of the control law.
        robot: The arm.
        period: Time between two torques [s]; the delay may be as long.

    Raises:
        SysidError: The joints are so elastic that no gains keep their margins.
        ParameterOutOfRange: There is none of this name; lists the names.
    """
    if name == "gravity_pid":
        return GravityPid(robot, PidSettings(period=period))
    if name not in CONTROLLERS:
        raise ParameterOutOfRange("controller", name, f"one of {', '.join(CONTROLLERS)}")
    settings = default_gains(robot, period)
    if name == ROBUST:
        return RobustController(robot, settings)
    # The settings of SVA, with momenta in place of accelerations.
    slow = OnlineModelSettings(frequency=0.3 * settings.bandwidth, period=period, observation=Observation.MOMENTUM)
    return OnlineModelController(robot, slow, learns=False)
