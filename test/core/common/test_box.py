import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError


def test_a_box_is_frozen_and_checked():
    box = Box([0.0, 1.0], [2.0, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        box.lower[0] = 5.0
    with pytest.raises(SysidError, match="entry 1 of the box has lower bound 2.0 and upper bound 1.0"):
        Box([0.0, 2.0], [1.0, 1.0])
    with pytest.raises(SysidError, match="nan"):
        Box([np.nan], [1.0])
    with pytest.raises(SysidError, match="lower must be <= upper"):
        Box.around([0.0], [-1.0])


def test_center_radius_width():
    rng = np.random.default_rng(0)
    for _ in range(200):
        low = rng.normal(size=5) * 10.0 ** rng.integers(-8, 8)
        box = Box(low, low + rng.uniform(0.0, 1.0, 5))
        assert np.all(box.center - box.radius <= box.lower) and np.all(box.upper <= box.center + box.radius)
    assert Box([1.0], [4.0]).width == pytest.approx([3.0])


def test_inside():
    box = Box([0.0, 0.0], [1.0, 2.0])
    assert box.contains([1.0, 2.0]) and not box.contains([1.0, 2.0001])
    assert Box([0.2, 0.0], [0.5, 2.0]).is_subset_of(box) and not box.is_subset_of(Box([0.2, 0.0], [0.5, 2.0]))


def test_intersection():
    box = Box([0.0, 0.0], [1.0, 2.0])
    common = box.intersect(Box([0.5, -1.0], [3.0, 1.0]))
    assert np.array_equal(common.lower, [0.5, 0.0])
    assert np.array_equal(common.upper, [1.0, 1.0])
    assert box.intersect(Box([1.5, 0.0], [2.0, 1.0])) is None


def test_sum_holds_all_sums():
    rng = np.random.default_rng(1)
    first, second = Box(rng.uniform(-1, 0, 4), rng.uniform(0, 1, 4)), Box(rng.uniform(-1, 0, 4), rng.uniform(0, 1, 4))
    total = first + second
    for _ in range(100):
        assert total.contains(rng.uniform(first.lower, first.upper) + rng.uniform(second.lower, second.upper))
    assert total.contains(first.lower + second.lower) and not total.contains(first.upper + second.upper + 1e-9)
