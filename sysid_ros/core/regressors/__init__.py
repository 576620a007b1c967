"""Regressors: dynamics as matrices times parameters, in batches over samples."""

from sysid_ros.core.regressors.body_columns import Columns
from sysid_ros.core.regressors.joint_tree import JointTree, UnsupportedJoint
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.momentum_derivatives import MomentumDerivatives, MomentumTerms
from sysid_ros.core.regressors.regressor_derivatives import RegressorDerivatives, RegressorDifferentiator
from sysid_ros.core.regressors.slotine_li import SlotineLiRegressor
from sysid_ros.core.regressors.torque import InvalidSamples, TorqueRegressor

__all__ = [
    "Columns",
    "InvalidSamples",
    "JointTree",
    "MomentumDerivatives",
    "MomentumRegressor",
    "MomentumTerms",
    "RegressorDerivatives",
    "RegressorDifferentiator",
    "SlotineLiRegressor",
    "TorqueRegressor",
    "UnsupportedJoint",
]
