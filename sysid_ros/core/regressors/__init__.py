"""Regressors: dynamics as matrices times parameters, in batches over samples."""

from sysid_ros.core.model.joint_tree import JointTree, UnsupportedJoint
from sysid_ros.core.regressors.columns import Columns, InvalidSamples
from sysid_ros.core.regressors.momentum import MomentumRegressor, RegressorDerivatives
from sysid_ros.core.regressors.slotine_li import SlotineLiRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor

__all__ = [
    "Columns",
    "InvalidSamples",
    "JointTree",
    "MomentumRegressor",
    "RegressorDerivatives",
    "SlotineLiRegressor",
    "TorqueRegressor",
    "UnsupportedJoint",
]
