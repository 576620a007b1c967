"""Regressors: dynamics as matrices times parameters, in batches over samples."""

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.regressors.columns import Columns
from sysid_ros.core.regressors.momentum import MomentumRegressor, RegressorDerivatives
from sysid_ros.core.regressors.torque import TorqueRegressor

__all__ = [
    "Columns",
    "JointTree",
    "MomentumRegressor",
    "RegressorDerivatives",
    "TorqueRegressor",
    "ModelError",
]
