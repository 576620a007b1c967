"""The kinematic tree and its kinematics, against Pinocchio."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.regressors.momentum import MomentumRegressor


def test_ancestors_are_pinocchios_supports(case):
    tree = JointTree.of(case.model)
    for i in range(case.n):
        expected = {joint - 1 for joint in case.model.supports[i + 1] if joint > 0}
        assert set(np.flatnonzero(tree.is_ancestor[:, i])) == expected


@pytest.mark.parametrize("joint", [pin.JointModelFreeFlyer(), pin.JointModelSpherical(), pin.JointModelRUBZ()])
def test_a_joint_without_a_constant_axis_is_refused_by_name(joint):
    model = pin.Model()
    first = model.addJoint(0, pin.JointModelRZ(), pin.SE3.Identity(), "shoulder")
    model.addJoint(first, joint, pin.SE3.Identity(), "ball")
    with pytest.raises(ModelError, match=f"'ball' is a {joint.shortname()}.*revolute, prismatic or helical"):
        MomentumRegressor(model)
