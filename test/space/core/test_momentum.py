"""The momentum model against Pinocchio's centroidal momentum, on trees with every kind of joint."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.space.core.momentum import FloatingTree, composite_inertia, compute_base_twist, system_kinematic_matrix

_JOINTS = (
    pin.JointModelRX,
    pin.JointModelRY,
    pin.JointModelRZ,
    pin.JointModelRUBX,
    pin.JointModelPX,
    pin.JointModelPZ,
    pin.JointModelSpherical,
    pin.JointModelSphericalZYX,
    pin.JointModelPlanar,
    pin.JointModelTranslation,
    lambda: pin.JointModelRevoluteUnaligned(np.array([0.0, 0.6, 0.8])),
    lambda: pin.JointModelPrismaticUnaligned(np.array([0.6, 0.0, -0.8])),
    lambda: pin.JointModelHX(0.1),
    lambda: pin.JointModelUniversal(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])),
)


def random_tree(seed: int, bodies: int, joints=_JOINTS) -> pin.Model:
    """A random floating tree with random physical inertias."""
    rng = np.random.default_rng(seed)
    pin.seed(seed)
    model = pin.Model()
    model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "base")
    model.appendBodyToJoint(1, pin.Inertia.Random(), pin.SE3.Identity())
    for k in range(bodies):
        parent = int(rng.integers(1, model.njoints))
        joint = model.addJoint(parent, joints[rng.integers(len(joints))](), pin.SE3.Random(), f"joint_{k}")
        model.appendBodyToJoint(joint, pin.Inertia.Random(), pin.SE3.Identity())
    return model


def random_states(model: pin.Model, rng, samples: int):
    """Base at the origin, so that Pinocchio's world is our base frame: full states and the joints' parts."""
    full_q = np.stack([pin.integrate(model, pin.neutral(model), rng.normal(size=model.nv)) for _ in range(samples)])
    full_q[:, :7] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    full_v = rng.normal(size=(samples, model.nv))
    return full_q, full_v


@pytest.mark.parametrize(("seed", "bodies"), [(0, 6), (1, 14), (2, 30), (3, 44)])
def test_momentum_is_that_of_pinocchio(seed, bodies):
    model = random_tree(seed, bodies)
    rng = np.random.default_rng(seed)
    q, v = random_states(model, rng, 5)
    tree = FloatingTree(model)
    found = system_kinematic_matrix(tree, q[:, 7:], v[:, 6:], v[:, :6]) @ tree.parameters
    data = model.createData()
    for k in range(5):
        pin.forwardKinematics(model, data, q[k], v[k])
        expected = sum(
            (data.oMi[i].act(model.inertias[i] * data.v[i]).vector for i in range(1, model.njoints)), np.zeros(6)
        )
        centroidal = pin.computeCentroidalMomentum(model, data, q[k], v[k])
        com = pin.centerOfMass(model, data, q[k])
        expected_again = np.concatenate(
            [centroidal.linear, centroidal.angular + np.cross(com, centroidal.linear)]
        )  # about the origin
        scale = np.abs(expected).max()
        assert np.abs(found[k] - expected).max() < 1e-12 * scale * bodies
        assert np.abs(found[k] - expected_again).max() < 1e-12 * scale * bodies


@pytest.mark.parametrize("seed", range(3))
def test_columns_are_those_of_single_parameters(seed):
    """A column says how Pinocchio's momentum changes with one parameter of one body."""
    model = random_tree(seed, 5)
    q, v = random_states(model, np.random.default_rng(seed), 1)
    matrix = system_kinematic_matrix(FloatingTree(model), q[:, 7:], v[:, 6:], v[:, :6])[0]
    data = model.createData()
    pin.forwardKinematics(model, data, q[0], v[0])
    for column in range(matrix.shape[1]):
        joint, parameter = 1 + column // 10, column % 10
        changed = pin.Inertia.FromDynamicParameters(model.inertias[joint].toDynamicParameters() + np.eye(10)[parameter])
        difference = data.oMi[joint].act(changed * data.v[joint] - model.inertias[joint] * data.v[joint]).vector
        np.testing.assert_allclose(matrix[:, column], difference, atol=1e-10 * np.abs(matrix).max())


@pytest.mark.parametrize("seed", range(4))
def test_base_twist_conserves_momentum(seed):
    model = random_tree(seed, 9)
    rng = np.random.default_rng(seed)
    q, v = random_states(model, rng, 7)
    tree = FloatingTree(model)
    momentum = rng.normal(size=(7, 6))
    twist = compute_base_twist(tree, tree.parameters, q[:, 7:], v[:, 6:], momentum)
    reached = system_kinematic_matrix(tree, q[:, 7:], v[:, 6:], twist) @ tree.parameters
    np.testing.assert_allclose(reached, momentum, atol=1e-10 * np.abs(momentum).max() * 10)


def test_composite_inertia_is_that_of_pinocchio():
    model = random_tree(5, 12)
    q, v = random_states(model, np.random.default_rng(5), 3)
    tree = FloatingTree(model)
    found = composite_inertia(tree.evaluate(q[:, 7:], v[:, 6:]), tree.parameters)
    data = model.createData()
    for k in range(3):
        full = pin.crba(model, data, q[k], pin.Convention.WORLD)
        np.testing.assert_allclose(found[k], full[:6, :6], atol=1e-11 * np.abs(full).max())


def test_input_that_cannot_be_used():
    fixed = pin.Model()
    fixed.addJoint(0, pin.JointModelRX(), pin.SE3.Identity(), "hinge")
    with pytest.raises(ModelError, match="is JointModelRX; a floating robot needs a free flyer"):
        FloatingTree(fixed)
    tree = FloatingTree(random_tree(0, 3, (pin.JointModelRX,)))
    q = np.zeros((2, 3))
    with pytest.raises(ParameterOutOfRange, match=r"\(2, 6\) finite numbers"):
        system_kinematic_matrix(tree, q, q, np.zeros((1, 6)))
    with pytest.raises(ParameterOutOfRange, match="shape of q"):
        tree.evaluate(np.zeros((2, 4)), q)
    with pytest.raises(ParameterOutOfRange, match="2, as many as of q|1 samples"):
        tree.evaluate(q, np.zeros((1, 3)))
    with pytest.raises(ParameterOutOfRange, match="v .not finite."):
        tree.evaluate(q, q + np.nan)
    with pytest.raises(ParameterOutOfRange, match="not positive definite"):
        compute_base_twist(tree, -tree.parameters, q, q)
    loose = pin.Model()
    loose.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "base")
    loose.addJoint(0, pin.JointModelRX(), pin.SE3.Identity(), "stray")
    with pytest.raises(ModelError, match="do not descend from the floating base: stray"):
        FloatingTree(loose)
