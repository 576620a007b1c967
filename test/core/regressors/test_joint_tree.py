"""The kinematic tree and its kinematics, against Pinocchio."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.model.robot_files import available_robots
from sysid_ros.core.regressors import JointTree, MomentumRegressor, UnsupportedJoint


def test_the_tests_cover_the_robots_of_the_suite():
    assert len(available_robots()) >= 6


def test_poses_and_axes_agree_with_pinocchio(case):
    frames = JointTree.of(case.model).frames(case.q)
    data = case.model.createData()
    for k, q in enumerate(case.q):
        pin.computeJointJacobians(case.model, data, q)
        for i in range(case.n):
            pose = data.oMi[i + 1]
            np.testing.assert_allclose(frames.rotation[i, :, :, k].T, pose.rotation, atol=1e-12)
            np.testing.assert_allclose(frames.origin[i, :, k], pose.translation, atol=1e-12)
            np.testing.assert_allclose(frames.axes[i, :, k], data.J[:, i], atol=1e-12)


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
    with pytest.raises(UnsupportedJoint, match=f"'ball' is a {joint.shortname()}.*revolute, prismatic or helical"):
        MomentumRegressor(model)
