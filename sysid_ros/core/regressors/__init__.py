"""Regressors: dynamics as matrices times parameters, in batches over samples."""

from sysid_ros.core.regressors.columns import Columns
from sysid_ros.core.regressors.derivatives import MomentumDerivatives, MomentumTerms
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.samples import InvalidSamples
from sysid_ros.core.regressors.slotine_li import SlotineLiRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.regressors.tree import JointTree, UnsupportedJoint

__all__ = [
    "Columns",
    "InvalidSamples",
    "JointTree",
    "MomentumDerivatives",
    "MomentumRegressor",
    "MomentumTerms",
    "SlotineLiRegressor",
    "TorqueRegressor",
    "UnsupportedJoint",
]
