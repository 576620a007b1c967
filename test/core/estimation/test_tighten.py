import numpy as np
import pytest

from sysid_ros.core.estimation.tighten import tighten
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent


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


def test_a_real_body_in_a_wide_box_is_kept():
    body = from_com_form(1.8, [0.01, -0.02, -0.26], np.diag([0.008, 0.009, 0.001]))
    box = tighten(Box.around(body, np.full(10, 0.5)))
    assert box.contains(body)
