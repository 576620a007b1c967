"""Parameters of the node ``estimator``."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.contact.wrench import ContactSettings
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.ros.parameters import parameter, parameters_from
from sysid_ros.ros.robot import FrameParameters, RobotParameters


@dataclass(frozen=True)
class EstimatorParameters(FrameParameters, RobotParameters):
    """Parameters of the node ``estimator``."""

    publish_rate: float = parameter(2.0, "Hz", lower=0.1, upper=50.0)
    """How often the estimate is renewed while data arrive."""
    estimator: EstimatorSettings = parameters_from(EstimatorSettings, read_only=True)
    contact: ContactSettings = parameters_from(ContactSettings, read_only=True)
