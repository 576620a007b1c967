"""Every variant of the kernel that this machine runs, against Pinocchio on random trees."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core import kernel
from sysid_ros.core.model import joint_tree as tree_module
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.regressors import columns as columns_module
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

SAMPLES = 9
"""More than any variant has lanes, and not a multiple of them."""


@pytest.fixture(params=kernel.load_variants(), ids=lambda module: module.__name__.rpartition(".")[2])
def variant(request, monkeypatch):
    """The regressors, computed by this variant."""
    for module in (columns_module, tree_module):
        monkeypatch.setattr(module, "kernel", request.param)
    return request.param


def draw(make_tree, seed):
    """A tree of 1 to 12 joints of all kinds, and samples of four vectors of joint values."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 13))
    parents, chain = [], [0]
    for joint in range(1, count + 1):  # depth first, as Pinocchio numbers joints
        if rng.random() < 0.3:
            del chain[int(rng.integers(1, len(chain) + 1)) :]
        parents.append(chain[-1])
        chain.append(joint)
    return make_tree(rng, parents, int(rng.integers(8))), rng.uniform(-2.0, 2.0, (4, SAMPLES, count)), rng


def close(found, expected):
    scale = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12 * scale)


def check_tree(make_tree, seed):
    model, (q, v, a, v_a), rng = draw(make_tree, seed)
    n, data, still = model.nv, model.createData(), np.zeros(model.nv)
    weightless = model.copy()
    weightless.gravity.linear = np.zeros(3)
    theta = np.concatenate([inertia.toDynamicParameters() for inertia in list(model.inertias)[1:]])
    torque, momentum, joint = TorqueRegressor(model), MomentumRegressor(model), int(rng.integers(n))
    weight = np.zeros((SAMPLES, n, 10 * n))
    weight[:, joint] = theta
    found, slopes = torque.inertial(q, v, a), torque.pull_back(q, v, a, weight)
    of_momentum = momentum.evaluate(q, v)[0][..., : 10 * n]
    slotine = SlotineLiRegressor(model).evaluate(q, v, v_a, a)[..., : 10 * n]
    tree, passive, (p, c) = JointTree.of(model).compiled, np.empty((SAMPLES, n)), np.empty((2, SAMPLES, n))
    tree.passive_torque(theta, q, v, v_a, a, passive)
    tree.momentum_of(theta, q, v, p, c)
    close(passive, slotine @ theta)
    close(p, of_momentum @ theta)
    moving, resting = momentum.differentiate(q, v), momentum.differentiate(q, 0.0 * v)
    frames = JointTree.of(model).frames(q)
    check_few_samples_and_bodies(model, q, v, a, v_a, rng)

    def regressor(model, *state):
        return np.array(pin.computeJointTorqueRegressor(model, data, *state)).reshape(n, 10 * n)

    for k in range(SAMPLES):
        close(found[k], regressor(model, q[k], v[k], a[k]))
        close(of_momentum[k], regressor(weightless, q[k], still, v[k]))
        both, own, other = (regressor(weightless, q[k], speed, still) for speed in (v[k] + v_a[k], v[k], v_a[k]))
        close(slotine[k], regressor(model, q[k], still, a[k]) + 0.5 * (both - own - other))
        for slope, expected in zip(slopes, pin.computeRNEADerivatives(model, data, q[k], v[k], a[k]), strict=True):
            close(slope[k], np.array(expected)[joint])
        dp_dq, _, inertia = (np.array(part) for part in pin.computeRNEADerivatives(weightless, data, q[k], still, v[k]))
        close(moving.momentum_q[k].transpose(0, 2, 1) @ theta, dp_dq)
        close(moving.momentum_v[k].transpose(0, 2, 1) @ theta, inertia)
        close(moving.force_v[k], moving.momentum_q[k].transpose(2, 1, 0))
        # dT/dq - g: the transpose of the Coriolis matrix makes the gradient of the kinetic energy.
        coriolis = np.array(pin.computeCoriolisMatrix(model, data, q[k], v[k]))
        force = coriolis.T @ v[k] - np.array(pin.computeGeneralizedGravity(model, data, q[k]))
        close(moving.force[k] @ theta, force)
        close(c[k], force)
        by_gravity = np.array(pin.computeGeneralizedGravityDerivatives(model, data, q[k]))
        close(resting.force_q[k].transpose(0, 2, 1) @ theta, -by_gravity)
        if k == 0:
            curvature = differentiate_energy_twice(weightless, q[k], v[k])
            close(moving.force_q[k].transpose(0, 2, 1) @ theta, curvature - by_gravity)
        pin.computeJointJacobians(model, data, q[k])
        close(frames.axes[:, :, k], np.array(data.J).reshape(6, n).T)  # a vector where n is 1
        for body in range(n):
            close(frames.rotation[body, :, :, k].T, data.oMi[body + 1].rotation)
            close(frames.origin[body, :, k], data.oMi[body + 1].translation)


def differentiate_energy_twice(weightless, q, v):
    """Second derivatives of the kinetic energy by positions: Pinocchio has only ``dp/dq``, and ``v . p = 2 T``."""
    data, still, step = weightless.createData(), np.zeros(weightless.nv), 0.02
    result = np.zeros((weightless.nv, weightless.nv))
    for times, weight in ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280)):  # differences of order eight
        for joint in range(weightless.nv):
            for side in (1.0, -1.0):
                moved = q + side * times * step * np.eye(weightless.nv)[joint]
                dp_dq = np.array(pin.computeRNEADerivatives(weightless, data, moved, still, v)[0])
                result[:, joint] += 0.5 * side * weight / step * (v @ dp_dq)
    return result


def check_few_samples_and_bodies(model, q, v, a, v_a, rng):
    """One sample, which is not computed in lanes, and some bodies only: parts of what all samples and bodies have."""
    bodies = tuple(int(body) for body in 1 + rng.permutation(model.nv)[: 1 + model.nv // 3])
    torque, momentum, slotine = (kind(model) for kind in (TorqueRegressor, MomentumRegressor, SlotineLiRegressor))
    part, weights = MomentumRegressor(model, bodies=bodies), rng.uniform(-1.0, 1.0, SAMPLES)
    whole = momentum.evaluate(q, v)
    close(torque.evaluate(q[:1], v[:1], a[:1])[0], torque.evaluate(q, v, a)[0])
    close(slotine.evaluate(q[:1], v[:1], v_a[:1], a[:1])[0], slotine.evaluate(q, v, v_a, a)[0])
    for one, some, all_of_it in zip(momentum.evaluate(q[:1], v[:1]), part.evaluate(q, v), whole, strict=True):
        close(one[0], all_of_it[0])
        close(some, all_of_it[..., part.columns.indices])
    close(part.integrate(q, v, weights), np.tensordot(weights, whole[1], 1)[:, part.columns.indices])
    dense = rng.normal(size=whole[0].shape)
    few = dense * (rng.random(dense.shape) < 0.1)  # most blocks have no weight, or none in their last column
    parts = [torque.pull_back(q, v, a, weight) for weight in (dense, few, dense - few)]
    for slope, one, some, rest in zip(
        parts[0], torque.pull_back(q[:1], v[:1], a[:1], dense[:1]), *parts[1:], strict=True
    ):
        close(slope[:1], one)
        close(some + rest, slope)


@pytest.mark.parametrize("seed", range(20))
def test_random_trees_are_pinocchios(variant, make_tree, seed):
    check_tree(make_tree, seed)


@pytest.mark.slow
def test_five_hundred_random_trees_are_pinocchios(variant, make_tree):
    for seed in range(1000, 1500):
        check_tree(make_tree, seed)


def test_sines_are_those_of_extended_precision(variant):
    """Near multiples of a quarter turn, far away and beyond the reduction: through the frame of one joint about z."""
    model = pin.Model()
    model.addJoint(0, pin.JointModelRZ(), pin.SE3.Identity(), "turn")
    rng = np.random.default_rng(0)
    quarters = np.arange(-2000, 2000) * (0.5 * np.pi)
    angles = [rng.uniform(-4.0, 4.0, 20_000), quarters, np.nextafter(quarters, 9e9), rng.uniform(-1e6, 1e6, 20_000)]
    q = np.concatenate([*angles, [0.0, -0.0, 1e-300, 1e9, -1e15]])
    rotation = JointTree.of(model).frames(q[:, None]).rotation[0]
    exact = q.astype(np.longdouble)
    for found, expected in ((rotation[0, 0], np.cos(exact)), (rotation[0, 1], np.sin(exact))):
        assert float(np.abs(found - expected).max()) < 2.0**-52


def test_arrays_that_do_not_fit_are_refused(make_tree):
    model, (q, v, a, _), _ = draw(make_tree, 3)
    tree, columns = JointTree.of(model).compiled, kernel.Columns([0], model.nv, True, True)
    out = np.empty((SAMPLES, model.nv, 10 + 4 * model.nv))
    with pytest.raises(ValueError, match="another shape"):
        tree.torque(columns, q, v[1:], a, v, out)
    with pytest.raises(ValueError, match="not as wide"):
        tree.torque(columns, q, v, a, v, np.empty((SAMPLES, model.nv, 11)))
    with pytest.raises(TypeError):  # a copy would be written, and lost
        tree.torque(columns, q, v, a, v, np.asfortranarray(out))
    with pytest.raises(ValueError, match="no such body"):
        kernel.Columns([model.nv], model.nv, True, True)
