"""What RViz is told to draw: where, how large, and nothing that is not known."""

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from doubles import make_estimate
from visualization_msgs.msg import Marker

from sysid_ros.core.model.inertia import bound_com, from_com_form
from sysid_ros.ros.markers import MarkerBuilder

MASS, COM = 1.8, np.array([0.01, -0.02, 0.15])
AXES = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])  # columns: directions of the semi-axes
SEMI_AXES = np.array([0.1, 0.06, 0.03])


def brick():
    """A solid ellipsoid of known pose."""
    a, b, c = SEMI_AXES**2
    return from_com_form(MASS, COM, AXES @ np.diag(MASS / 5.0 * np.array([b + c, a + c, a + b])) @ AXES.T)


def estimate_of(values, width=0.05, **changes):
    values = np.asarray(values, dtype=float)
    half = width * np.maximum(np.abs(values), 1e-3)
    return make_estimate(**{"values": values, "lower": values - half, "upper": values + half, **changes})


def rotation_of(marker):
    x, y, z, w = (getattr(marker.pose.orientation, name) for name in "xyzw")
    assert x * x + y * y + z * z + w * w == pytest.approx(1.0)
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def position_of(marker):
    return np.array([marker.pose.position.x, marker.pose.position.y, marker.pose.position.z])


def size_of(marker):
    return np.array([marker.scale.x, marker.scale.y, marker.scale.z])


@pytest.fixture
def pose():
    """A rotation that turns every axis, and an origin."""
    rng = np.random.default_rng(4)
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return rotation * np.sign(np.linalg.det(rotation)), np.array([0.3, -0.2, 0.5])


def draw(estimate, pose):
    builder = MarkerBuilder("base_link", Time(sec=3))
    builder.add_payload(estimate, *pose)
    return {marker.ns: marker for marker in builder.array().markers[1:]}


def test_payload_is_drawn_where_and_how_large_it_is(pose):
    rotation, origin = pose
    markers = draw(estimate_of(brick()), pose)
    ellipsoid = markers["payload"]
    np.testing.assert_allclose(position_of(ellipsoid), origin + rotation @ COM, atol=1e-12)
    # The matrix of the drawn ellipsoid, which does not depend on the order and the signs of its axes.
    turned = rotation_of(ellipsoid)
    drawn = turned @ np.diag((0.5 * size_of(ellipsoid)) ** 2) @ turned.T
    true = rotation @ AXES @ np.diag(SEMI_AXES**2) @ AXES.T @ rotation.T
    np.testing.assert_allclose(drawn, true, atol=1e-12)
    np.testing.assert_allclose(position_of(markers["com"]), position_of(ellipsoid))
    assert markers["text"].text == "1.800 kg in [1.710, 1.890]" and position_of(markers["text"])[2] > 0.5


def test_box_of_the_com_contains_every_com_the_bounds_allow(pose):
    rotation, origin = pose
    estimate = estimate_of(brick(), width=0.2)
    box = draw(estimate, pose)["com_bounds"]
    rng = np.random.default_rng(1)
    theta = rng.uniform(estimate.lower, estimate.upper, size=(2000, 10))
    corners = np.array(np.meshgrid(*zip(estimate.lower[:4], estimate.upper[:4], strict=True))).reshape(4, -1).T
    coms = np.concatenate([theta[:, 1:4] / theta[:, :1], corners[:, 1:] / corners[:, :1]])
    inside = (origin + coms @ rotation.T - position_of(box)) @ rotation_of(box)
    assert np.all(np.abs(inside) <= 0.5 * size_of(box) + 1e-12)
    assert np.max(np.abs(inside) / (0.5 * size_of(box))) == pytest.approx(1.0)  # and no larger than need be
    np.testing.assert_allclose(rotation_of(box), rotation, atol=1e-12)


def test_bounds_of_the_com_are_infinite_where_the_mass_may_be_zero(pose):
    estimate = estimate_of(brick(), width=1.5)
    lower, upper = bound_com(estimate.lower, estimate.upper)
    assert np.all(lower == -np.inf) and np.all(upper == np.inf)
    assert set(draw(estimate, pose)) == {"payload", "com", "text"}


@pytest.mark.parametrize("values", [np.full(10, np.nan), [1.0, *9 * [0.0]], [1.0, 0, 0, 0, 1.0, 0, 0.1, 0, 0, 0.1]])
def test_what_no_body_can_be_is_not_drawn_as_one(pose, values):
    bounds = {"lower": brick() - 0.1, "upper": brick() + 0.1}
    assert set(draw(estimate_of(values, **bounds), pose)) == {"com_bounds"}


def test_every_array_replaces_the_one_before_and_every_marker_can_be_drawn(pose):
    builder = MarkerBuilder("base_link", Time(sec=3))
    builder.add_sphere("arm", [0.1, 0.2, 0.3], 0.05)
    builder.add_path("plan", np.arange(12.0).reshape(4, 3))
    builder.add_payload(estimate_of(brick()), *pose)
    first, *others = builder.array().markers
    assert first.action == Marker.DELETEALL
    assert len({marker.id for marker in others}) == len(others) == 6
    for marker in others:
        assert marker.action == Marker.ADD and marker.header.frame_id == "base_link" and marker.header.stamp.sec == 3
        assert np.all(np.isfinite([*position_of(marker), *size_of(marker), *rotation_of(marker).ravel()]))
        assert max(size_of(marker)) > 0.0 and marker.color.a > 0.0
    path = others[1]
    assert path.type == Marker.LINE_STRIP and [point.x for point in path.points] == [0.0, 3.0, 6.0, 9.0]
    np.testing.assert_allclose(size_of(others[0]), 0.1)
