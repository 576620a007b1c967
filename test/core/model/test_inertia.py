"""Algebra of the ten parameters against Pinocchio and against point masses."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import NotPhysicallyConsistent
from sysid_ros.core.common.spatial import inverse_placement, rotation_from_rpy
from sysid_ros.core.model.inertia import (
    from_com_form,
    from_pseudo_inertia,
    inertia_matrix,
    is_physically_consistent,
    largest_share,
    pack,
    pseudo_inertia,
    radius_of_share,
    require_physically_consistent,
    to_com_form,
    transform_box,
    transform_matrix,
    transform_parameters,
)


def random_placement(rng):
    return rotation_from_rpy(rng.uniform(-np.pi, np.pi, 3)), rng.uniform(-1.0, 1.0, 3)


def point_masses(masses, points):
    """Parameters of a heap of points, from the definition of each integral."""
    second = np.einsum("k,ki,kj->ij", masses, points, points)
    return pack(masses.sum(), masses @ points, np.trace(second) * np.eye(3) - second)


@pytest.fixture
def cloud():
    rng = np.random.default_rng(0)
    return rng.uniform(0.1, 1.0, 9), rng.uniform(-0.4, 0.4, (9, 3))


def test_order_and_reference_point_are_those_of_pinocchio():
    rng = np.random.default_rng(1)
    for _ in range(20):
        inertia = pin.Inertia.Random()
        theta = inertia.toDynamicParameters()
        assert from_com_form(inertia.mass, inertia.lever, inertia.inertia) == pytest.approx(theta, abs=1e-12)
        mass, com, about_com = to_com_form(theta)
        assert mass == pytest.approx(inertia.mass)
        assert com == pytest.approx(inertia.lever)
        assert about_com == pytest.approx(inertia.inertia, abs=1e-12)
        rotation, translation = random_placement(rng)
        moved = pin.SE3(rotation, translation).act(inertia).toDynamicParameters()
        assert transform_parameters(theta, rotation, translation) == pytest.approx(moved, abs=1e-11)
        assert transform_matrix(rotation, translation) @ theta == pytest.approx(moved, abs=1e-11)


def test_parameters_of_point_masses(cloud):
    masses, points = cloud
    theta = point_masses(masses, points)
    assert theta[4] == pytest.approx(masses @ (points[:, 1] ** 2 + points[:, 2] ** 2))
    assert theta[5] == pytest.approx(-masses @ (points[:, 0] * points[:, 1]))
    assert pseudo_inertia(theta)[:3, :3] == pytest.approx(np.einsum("k,ki,kj->ij", masses, points, points))
    rotation, translation = random_placement(np.random.default_rng(2))
    moved = point_masses(masses, points @ rotation.T + translation)
    assert transform_parameters(theta, rotation, translation) == pytest.approx(moved, abs=1e-12)
    assert np.allclose(inertia_matrix(theta), inertia_matrix(theta).T)


def test_round_trips(cloud):
    theta = point_masses(*cloud)
    assert from_com_form(*to_com_form(theta)) == pytest.approx(theta)
    assert from_pseudo_inertia(pseudo_inertia(theta)) == pytest.approx(theta)
    rotation, translation = random_placement(np.random.default_rng(3))
    there = transform_parameters(theta, rotation, translation)
    assert transform_parameters(there, *inverse_placement(rotation, translation)) == pytest.approx(theta)


def test_body_without_mass():
    mass, com, inertia = to_com_form(np.array([0.0, 1.0, 0.0, 0.0, 3.0, 0.0, 3.0, 0.0, 0.0, 3.0]))
    assert (mass, *com) == (0.0, 0.0, 0.0, 0.0)
    assert inertia == pytest.approx(3.0 * np.eye(3))


@pytest.mark.parametrize(
    ("mass", "moments", "is_possible"),
    [(1.0, (1.0, 1.0, 1.9), True), (1.0, (1.0, 1.0, 2.1), False), (-1.0, (1.0, 1.0, 1.0), False)],
)
def test_physical_consistency_is_the_triangle_inequality(mass, moments, is_possible):
    rotation, translation = random_placement(np.random.default_rng(4))
    theta = transform_parameters(pack(mass, np.zeros(3), np.diag(moments)), rotation, translation)
    assert is_physically_consistent(theta) is is_possible
    if is_possible:
        require_physically_consistent(theta, "link")
    else:
        with pytest.raises(NotPhysicallyConsistent, match="inertia of 'link' is not physically consistent") as caught:
            require_physically_consistent(theta, "link")
        assert caught.value.eigenvalues[0] < 0.0


def test_consistency_agrees_with_point_masses(cloud):
    assert is_physically_consistent(point_masses(*cloud))
    # The first moment says the CoM is outside of where the second moments put the mass.
    far = point_masses(*cloud)
    far[1] += 2.0 * far[0]
    assert not is_physically_consistent(far)


def test_transformed_box_is_the_hull():
    rng = np.random.default_rng(5)
    for _ in range(10):
        box = Box.around(rng.normal(size=10), rng.uniform(0.0, 0.5, 10))
        rotation, translation = random_placement(rng)
        moved = transform_box(box, rotation, translation)
        inside = rng.uniform(box.lower, box.upper, (300, 10))
        corners = np.where(rng.integers(0, 2, (300, 10)) == 1, box.upper, box.lower)
        for theta in (*inside, *corners):
            assert moved.contains(transform_parameters(theta, rotation, translation))
        # Each bound is reached at the corner that the signs of the linear map point to.
        matrix = transform_matrix(rotation, translation)
        for i in range(10):
            best = np.where(matrix[i] > 0.0, box.upper, box.lower)
            assert matrix[i] @ best == pytest.approx(moved.upper[i], abs=1e-11)
        # The mass is the same from everywhere: what is not negative stays so.
        assert (moved.lower[0], moved.upper[0]) == (box.lower[0], box.upper[0])


def test_transformed_box_is_rounded_outwards():
    """Against exact rational arithmetic, for a translation."""
    from fractions import Fraction

    rng = np.random.default_rng(6)
    for _ in range(50):
        theta, shift = rng.normal(size=10) * 10.0 ** rng.integers(-3, 3, 10), rng.normal(size=3)
        box = transform_box(Box(theta, theta), np.eye(3), shift)
        m, h = Fraction(theta[0]), [Fraction(x) for x in theta[1:4]]
        t = [Fraction(x) for x in shift]
        first = [a + m * b for a, b in zip(h, t, strict=True)]
        xx = Fraction(theta[4]) + 2 * (h[1] * t[1] + h[2] * t[2]) + m * (t[1] ** 2 + t[2] ** 2)
        xy = Fraction(theta[5]) - h[0] * t[1] - h[1] * t[0] - m * t[0] * t[1]
        for index, exact in ((1, first[0]), (2, first[1]), (3, first[2]), (4, xx), (5, xy)):
            assert Fraction(box.lower[index]) <= exact <= Fraction(box.upper[index])
        assert np.all(box.width < 1e-10 * max(1.0, np.abs(theta).max()))


def test_parameters_of_a_share_of_the_pseudo_inertia_reach_their_radii(cloud):
    theta, share, rng = point_masses(*cloud), 0.3, np.random.default_rng(3)
    radius = radius_of_share(theta, share)
    values, vectors = np.linalg.eigh(pseudo_inertia(theta))
    root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    reached = np.zeros(10)
    for _ in range(400):
        axes = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        change = from_pseudo_inertia(root @ axes @ np.diag(share * rng.choice([-1.0, 1.0], 4)) @ axes.T @ root)
        assert np.all(np.abs(change) <= radius * (1.0 + 1e-12))
        assert largest_share(theta + change, theta) == pytest.approx(share)
        reached = np.maximum(reached, np.abs(change) / radius)
    # By the sign of J^1/2 L J^1/2 each of them is reached: no smaller radii would do.
    for index in range(10):
        function = np.zeros((4, 4))
        for i in range(4):
            for j in range(4):
                unit = np.zeros((4, 4))
                unit[i, j] = unit[j, i] = 0.5
                function[i, j] = from_pseudo_inertia(unit)[index]
        values, vectors = np.linalg.eigh(root @ function @ root)
        extreme = root @ vectors @ np.diag(share * np.sign(values)) @ vectors.T @ root
        assert abs(from_pseudo_inertia(extreme)[index]) == pytest.approx(radius[index])
    assert reached.min() > 0.3
