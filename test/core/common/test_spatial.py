"""Spatial algebra against Pinocchio."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.spatial import (
    axis_frame,
    cross,
    force_cross,
    inverse_placement,
    motion_cross,
    motion_cross_matrix,
    motion_transform,
    rotation_from_rpy,
    skew,
)
from sysid_ros.core.model.inertia import unit_inertias


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_cross_products_of_vectors(rng):
    left, right = rng.normal(size=(2, 5, 4, 3))
    expected = np.cross(left, right)
    np.testing.assert_allclose(cross(left, right), expected, atol=1e-15)
    np.testing.assert_allclose((skew(left) @ right[..., None])[..., 0], expected, atol=1e-15)
    np.testing.assert_array_equal(skew(left[0, 0]), pin.skew(left[0, 0]))
    np.testing.assert_allclose(cross(left[:, :1], right), np.cross(left[:, :1], right), atol=1e-15)


def test_motion_and_force_cross_products_are_pinocchios(rng):
    left, right = rng.normal(size=(2, 20, 6))
    motions, forces = motion_cross(left, right), force_cross(left, right)
    for k in range(20):
        motion = pin.Motion(left[k])
        np.testing.assert_allclose(motions[k], motion.cross(pin.Motion(right[k])).vector, atol=1e-14)
        np.testing.assert_allclose(forces[k], motion.cross(pin.Force(right[k])).vector, atol=1e-14)
        np.testing.assert_allclose(motion_cross_matrix(left[k]) @ right[k], motions[k], atol=1e-14)
    # (V x* f) . m = -f . (V x m)
    other = rng.normal(size=6)
    np.testing.assert_allclose(forces @ other, -(right * motion_cross(left, other)).sum(axis=1), atol=1e-13)


def test_transform_of_motions_is_pinocchios(rng):
    placements = [pin.SE3.Random() for _ in range(5)]
    rotations, translations = (np.array([getattr(m, name) for m in placements]) for name in ("rotation", "translation"))
    expected = np.array([m.inverse().toActionMatrix() for m in placements])
    np.testing.assert_allclose(motion_transform(rotations, translations), expected, atol=1e-14)
    rotation, translation = inverse_placement(rotations[0], translations[0])
    np.testing.assert_allclose(motion_transform(rotation, translation), placements[0].toActionMatrix(), atol=1e-14)


def test_unit_inertias_are_pinocchios_order(rng):
    theta = pin.Inertia.Random().toDynamicParameters()
    expected = pin.Inertia.FromDynamicParameters(theta).matrix()
    np.testing.assert_allclose(np.tensordot(theta, unit_inertias(), 1), expected, atol=1e-14)


@pytest.mark.parametrize("axis", [(0, 0, 1), (0, 0, -1), (1, 0, 0), (0, 1, 0), (0.6, 0, -0.8), (0.48, 0.6, 0.64)])
def test_axis_frame_is_a_rotation_about_the_axis(axis):
    frame = axis_frame(np.array(axis, dtype=float))
    assert axis != (0, 0, 1) or np.array_equal(frame, np.eye(3))
    np.testing.assert_allclose(frame[:, 2], axis, atol=1e-15)
    np.testing.assert_allclose(frame.T @ frame, np.eye(3), atol=1e-15)
    assert np.linalg.det(frame) == pytest.approx(1.0)


def test_angles_of_urdf(rng):
    for rpy in rng.uniform(-np.pi, np.pi, (20, 3)):
        np.testing.assert_allclose(rotation_from_rpy(rpy), pin.rpy.rpyToMatrix(rpy), atol=1e-12)
