"""Taylor models of the kernel along random paths of random trees: they enclose, and are tight."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core import kernel
from sysid_ros.core.model import joint_tree as tree_module
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.regressors.torque import TorqueRegressor

PARENTS = ((0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 2, 4, 1), (0,), (0, 1, 0))
PIECES = 6
"""Not a multiple of the lanes of every variant."""
U = np.concatenate([[-1.0, 0.0, 1.0], np.random.default_rng(0).uniform(-1.0, 1.0, 12)])
POWERS = U ** np.arange(6)[:, None]


@pytest.fixture(params=kernel.load_variants(), ids=lambda module: module.__name__.rpartition(".")[2])
def variant(request, monkeypatch):
    monkeypatch.setattr(tree_module, "kernel", request.param)
    return request.param


def draw_paths(rng, n, size):
    """Polynomials of position, velocity and acceleration, (3, 7, n, PIECES), and values inside of them, (3, n, P, U).

    Unrelated to each other, so that every operation is tried with all three.
    """
    paths = size ** np.minimum(np.arange(7), 5)[:, None, None] * rng.normal(size=(3, 7, n, PIECES))
    paths[:, 0] *= 2.0
    paths[:, 6] = 1e-3 * size**4 * np.abs(paths[:, 6])
    waves = np.cos(rng.uniform(0.0, 9.0, (3, n, PIECES, 1)) + 5.0 * U)
    return paths, np.einsum("sknp,ku->snpu", paths[:, :6], POWERS) + paths[:, 6, :, :, None] * waves


def excess(series, values):
    """How far values (..., P, U) are outside of series (4, ..., P) at most, and the share of the rest they use."""
    parabola = np.einsum("k...p,ku->...pu", series[:3], POWERS[:3])
    away, rest = np.abs(values - parabola), series[3][..., None]
    return float((away - rest).max()), float((away / (rest + 1e-12)).max())


def evaluate(model, values):
    """The three regressors of all pairs, (3, pairs, 10, P, U), and the poses of the bodies at all points."""
    n = model.nv
    q, v, a = values.reshape(3, n, -1).transpose(0, 2, 1)
    still, weightless = 0.0 * q, model.copy()
    weightless.gravity.linear = np.zeros(3)
    full = [
        TorqueRegressor(model).inertial(q, still, still),
        TorqueRegressor(weightless).inertial(q, v, a),
        TorqueRegressor(weightless).inertial(q, still, v),
    ]
    joints, bodies = np.nonzero(JointTree.of(model).is_ancestor)
    blocks = [one.reshape(len(q), n, n, 10)[:, joints, bodies].transpose(1, 2, 0) for one in full]
    return np.array(blocks).reshape(3, len(joints), 10, PIECES, U.size), JointTree.of(model).frames(q)


@pytest.mark.parametrize("parents", PARENTS, ids=str)
@pytest.mark.parametrize("size", [0.02, 0.3])
def test_regressors_and_points_are_enclosed(variant, make_tree, parents, size):
    largest = 0.0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        model, n = make_tree(rng, parents, seed), len(parents)
        paths, values = draw_paths(rng, n, size)
        tree = JointTree.of(model)
        truth, frames = evaluate(model, values)
        found = np.empty((3, 4, truth.shape[1], 10, PIECES))
        tree.compiled.torque_along(*paths, found)
        for series, exact in zip(found, truth, strict=True):
            outside, used = excess(series, exact)
            assert outside < 1e-11 * max(1.0, np.abs(exact).max())
            largest = max(largest, used)
        bodies, local = rng.integers(0, n + 1, 5), rng.normal(scale=0.3, size=(5, 3))
        points, axes, origins = np.empty((4, 5, 3, PIECES)), np.empty((n, 3, PIECES)), np.empty((n, 3, PIECES))
        tree.compiled.points_along(paths[0], bodies.tolist(), local, points, axes, origins)
        exact = np.repeat(local[..., None], values[0, 0].size, axis=2)
        for k in np.flatnonzero(bodies):
            body = bodies[k] - 1
            exact[k] = np.einsum("b,bct->ct", local[k], frames.rotation[body]) + frames.origin[body]
        assert excess(points, exact.reshape(5, 3, PIECES, U.size))[0] < 1e-12
        middle = tree.frames(paths[0, 0].T)
        np.testing.assert_allclose(origins, middle.origin, atol=1e-12)
        along = middle.axes[:, 3:] + (np.abs(middle.axes[:, 3:]).max(axis=1, keepdims=True) == 0) * middle.axes[:, :3]
        np.testing.assert_allclose(axes, along / np.linalg.norm(along, axis=1, keepdims=True), atol=1e-12)
    assert largest > 0.01  # the rests are needed


def test_rests_shrink_with_the_third_power_of_the_piece(make_tree):
    """The cubic part of a parabola remains; everything else is of the fourth order."""
    rng = np.random.default_rng(1)
    model = make_tree(rng, PARENTS[0])
    paths, _ = draw_paths(rng, 8, 0.2)
    paths[:, 6] = 0.0
    rests = []
    for half in (1.0, 0.5):
        found = np.empty((3, 4, 36, 10, PIECES))
        JointTree.of(model).compiled.torque_along(*(paths * half ** np.arange(7)[:, None, None]), found)
        rests.append(np.median(found[:, 3][found[:, 3] > 1e-12]))
    assert rests[1] < rests[0] / 6.5


def test_gravity_of_one_pendulum_is_a_sine():
    """Known by hand: a unit first moment about a horizontal axis needs g cos q, of which the series is Taylor's."""
    model = pin.Model()
    model.addJoint(0, pin.JointModelRY(), pin.SE3.Identity(), "swing")
    path, still = np.zeros((7, 1, 1)), np.zeros((7, 1, 1))
    path[:2, 0, 0] = 0.4, 0.1
    found = np.empty((3, 4, 1, 10, 1))
    JointTree.of(model).compiled.torque_along(path, still, still, found)
    gravity = -9.81 * np.array([np.cos(0.4), -0.1 * np.sin(0.4), -0.005 * np.cos(0.4)])
    np.testing.assert_allclose(found[0, [0, 2], 0, 1, 0], gravity[[0, 2]], rtol=1e-12)
    assert found[0, 1, 0, 1, 0] == pytest.approx(gravity[1] - 0.75 * 9.81 * 1e-3 / 6.0 * np.sin(0.4), rel=1e-12)
