import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.bounds import ParameterBounds, hull, tighten, tighten_to_shape
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent
from sysid_ros.core.model.payload import object_box
from sysid_ros.core.model.robot import PayloadShape


def random_body(rng):
    """A body of a few point masses: also flat and thin ones, and ones without extent."""
    count = rng.integers(1, 5)
    points, masses = rng.normal(size=(count, 3)) * rng.choice([0.0, 0.1, 0.5], 3), rng.uniform(0, 2, count)
    second = np.einsum("k,ki,kj->ij", masses, points, points)
    inertia = np.trace(second) * np.eye(3) - second
    return np.concatenate([[masses.sum()], masses @ points, inertia[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]]])


def test_no_body_is_lost():
    rng = np.random.default_rng(0)
    shrunk = 0
    for _ in range(700):
        body = random_body(rng)
        size = rng.uniform(0, 1, 10) * rng.choice([1e-9, 0.1, 1.0], 10) * (np.abs(body) + 0.1)
        box = Box(body - size * rng.uniform(0, 1, 10), body + size * rng.uniform(0, 1, 10))
        small = tighten(box)
        assert small is not None and small.contains(body)
        assert small.is_subset_of(box)
        shrunk += bool(np.any(small.width < box.width))
    assert shrunk > 230


def test_bounds_follow_from_each_other():
    lower = [0.0, -1, -1, -1, -1, -1, -1, -1, -1, -1]
    upper = [2.0, 1, 1, 1, 0.01, 1, 0.02, 1, 1, 1]
    box = tighten(Box(np.array(lower), np.array(upper)))
    assert box.lower[4] >= 0.0 and box.lower[9] >= 0.0
    assert box.upper[9] == pytest.approx(0.03)  # the triangle inequality
    assert box.upper[5] <= 0.015 + 1e-12  # |Ixy| <= Izz / 2
    assert box.upper[3] <= np.sqrt(2.0 * 0.01) + 1e-9  # (m c_z)^2 <= m S_zz <= m Ixx


@pytest.mark.parametrize(
    "change",
    [{0: (-2.0, -1.0)}, {4: (1.0, 1.1), 6: (0.0, 0.1), 9: (0.0, 0.1)}, {1: (0.9, 1.0), 6: (0, 0.01), 9: (0, 0.01)}],
)
def test_boxes_without_a_body_are_empty(change):
    lower, upper = -np.ones(10), np.ones(10)
    for index, (low, high) in change.items():
        lower[index], upper[index] = low, high
    assert tighten(Box(lower, upper)) is None
    assert not any(is_physically_consistent(np.random.default_rng(k).uniform(lower, upper)) for k in range(200))


SHAPE = PayloadShape(Box(np.array([-0.06, -0.06, -0.32]), np.array([0.06, 0.06, -0.12])), 0.1)


def random_object(rng, mass):
    """A body of the shape: CoM anywhere in its box, radii of gyration up to the largest, corners included."""
    draw = rng.uniform(0.0, 1.0, 3) if rng.random() < 0.5 else rng.integers(0, 2, 3)
    com = SHAPE.com.lower + draw * (SHAPE.com.upper - SHAPE.com.lower)
    moments = rng.dirichlet([0.5, 0.5, 0.5])  # second moments: radius of gyration about an axis is the sum of two
    moments *= SHAPE.gyration**2 / max(moments[0] + moments[1], moments[0] + moments[2], moments[1] + moments[2])
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    second = axes @ np.diag(moments * rng.choice([1.0, rng.uniform()])) @ axes.T
    return from_com_form(mass, com, mass * (np.trace(second) * np.eye(3) - second))


def test_no_object_of_the_shape_is_lost():
    rng = np.random.default_rng(1)
    narrower = 0
    for _ in range(600):
        body = random_object(rng, rng.uniform(0.05, 2.5))
        size = rng.uniform(0, 1, 10) * rng.choice([1e-9, 0.02, 0.3], 10)
        prior = object_box([0.0, 2.5], SHAPE.com, SHAPE.gyration)
        box = Box(body - size * rng.uniform(0, 1, 10), body + size * rng.uniform(0, 1, 10)).intersect(prior)
        small = tighten_to_shape(box, SHAPE)
        assert small is not None and small.contains(body) and small.is_subset_of(box)
        narrower += bool(np.any(small.width < 0.9 * box.width))
    assert narrower > 200


def test_a_weighed_object_has_bounds_of_its_inertia():
    """Mass and first moments are known, the inertia is not: what the shape leaves of it."""
    body = from_com_form(1.8, [0.0, 0.0, -0.2], 1.8 * 0.05**2 * np.eye(3))
    prior = object_box([0.0, 2.5], SHAPE.com, SHAPE.gyration)
    known = Box(body - [0.3, 0.02, 0.02, 0.08, *[9.0] * 6], body + [0.3, 0.02, 0.02, 0.08, *[9.0] * 6]).intersect(prior)
    small = tighten_to_shape(known, SHAPE)
    # I_xx is at most m r^2 + (m c_z) c_z + (m c_y) c_y, by hand
    assert small.upper[4] == pytest.approx(2.1 * 0.01 + 0.44 * (0.44 / 1.5) + 0.02 * (0.02 / 1.5), rel=1e-9)
    assert small.lower[4] == pytest.approx(0.28 * (0.28 / 2.1), rel=1e-9)
    assert small.upper[4] < 0.6 * prior.upper[4]


def test_a_com_outside_its_box_is_no_object_of_the_shape():
    body = from_com_form(1.8, [0.0, 0.0, -0.4], 1.8 * 0.05**2 * np.eye(3))
    assert tighten_to_shape(Box.around(body, np.full(10, 0.01)), SHAPE) is None


def test_bounds_only_shrink_and_end_empty(robot):
    target = describe_unknowns(robot, EstimatorSettings(body="all")).target
    known = ParameterBounds.from_prior(target)
    lower, upper = known.ranges.lower, known.ranges.upper
    half = known.intersect(lower - 1.0, 0.5 * (lower + upper))
    assert half.ranges.is_subset_of(known.ranges) and half.box.is_subset_of(known.box)
    assert np.any(half.box.upper < known.box.upper)
    assert half.intersect(upper, upper + 1.0) is None
    point = target.nominal
    assert hull(target.combinations.matrix, Box(point, point)).contains(target.combinations.matrix @ point)
