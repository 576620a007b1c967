import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.estimation.bounds import state
from sysid_ros.core.estimation.bounds.shape_cuts import shape_cuts
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent, transform_parameters
from sysid_ros.core.model.payload import object_box
from sysid_ros.core.model.robot import PayloadShape, TurnedBox
from sysid_ros.core.model.sampling import sample_parameters

DIAGONAL = np.sqrt(0.5) * np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 0.0, np.sqrt(2.0)]])


def random_shape(rng):
    """A box anywhere, of no width along some axes, and any radius of gyration."""
    lower = rng.uniform(-0.4, 0.4, 3)
    return PayloadShape(Box(lower, lower + rng.uniform(0.0, 0.3, 3) * rng.integers(0, 3, 3)), rng.uniform(0.01, 0.2))


def random_object(rng, shape):
    """A body of the shape, extreme ones among them: points, rods and shells, at corners, along axes and diagonals."""
    at = rng.integers(0, 2, 3) if rng.random() < 0.6 else rng.uniform(0.0, 1.0, 3)
    com = shape.com.lower + at * shape.com.width
    moments = rng.dirichlet([0.3, 0.3, 0.3])
    moments /= max(moments.sum() - moments.min(), 1e-12)  # the largest radius of gyration is that of the shape
    if rng.random() < 0.5:
        moments = np.array([[0.5, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])[rng.integers(0, 3)]
        moments = rng.permutation(moments)
    order = rng.permutation(3)
    axes = [np.eye(3), DIAGONAL[order][:, order], np.linalg.qr(rng.normal(size=(3, 3)))[0]][rng.integers(0, 3)]
    second = shape.gyration**2 * axes @ np.diag(moments) @ axes.T
    mass = rng.uniform(0.0, 3.0)
    return from_com_form(mass, com, mass * (np.trace(second) * np.eye(3) - second))


def box_of(shape):
    return object_box([0.0, 3.0], shape.com, shape.gyration)


def test_every_object_of_a_shape_fulfils_them():
    rng = np.random.default_rng(0)
    for _ in range(100):
        shape = random_shape(rng)
        cuts = shape_cuts(shape, box_of(shape))
        bodies = np.array([random_object(rng, shape) for _ in range(60)])
        assert np.all(bodies @ cuts.T >= -1e-13 * (np.abs(bodies) @ np.abs(cuts).T))


def test_none_of_them_is_looser_than_need_be():
    """Each is touched by some object, so that a smaller one would cut it off."""
    rng = np.random.default_rng(1)
    for _ in range(3):
        lower = rng.uniform(-0.4, 0.1, 3)
        shape = PayloadShape(Box(lower, lower + rng.uniform(0.05, 0.3, 3)), rng.uniform(0.05, 0.2))
        bodies = np.array([random_object(rng, shape) for _ in range(4000)])
        bodies = bodies[bodies[:, 0] > 0.5]
        cuts = shape_cuts(shape, box_of(shape))
        assert len(cuts) == 33
        least = np.min(bodies @ cuts.T / (np.abs(bodies) @ np.abs(cuts).T), axis=0)
        assert np.all(least < 1e-6)


def test_they_hold_and_say_more_in_a_narrower_box():
    rng = np.random.default_rng(2)
    more = 0
    for _ in range(300):
        shape = random_shape(rng)
        body = random_object(rng, shape)
        size = rng.uniform(0.0, 0.3, 10) * body[0]
        box = Box(body - size * rng.uniform(0.0, 1.0, 10), body + size).intersect(box_of(shape))
        assert box is not None
        cuts = shape_cuts(shape, box)
        assert np.all(cuts @ body >= -1e-12 * (np.abs(cuts) @ np.abs(body)))
        more += not np.allclose(cuts, shape_cuts(shape, box_of(shape)), atol=1e-6)
    assert more > 100


def test_along_other_axes_they_hold_and_cut_off_more():
    """The box of a CoM that was stated along other axes is smaller than the box around it."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        own, axes = random_shape(rng), rotation_from_rpy(rng.uniform(-1.0, 1.0, 3))
        hull = Box.around(axes @ own.com.center, np.abs(axes) @ own.com.radius + 1e-12)
        turned = PayloadShape(hull, own.gyration, TurnedBox(axes, own.com))
        bodies = np.array([transform_parameters(random_object(rng, own), axes, np.zeros(3)) for _ in range(60)])
        box = box_of(turned)
        cuts, fewer = shape_cuts(turned, box), shape_cuts(PayloadShape(hull, own.gyration), box)
        assert np.all(bodies @ cuts.T >= -1e-13 * (np.abs(bodies) @ np.abs(cuts).T))
        outside = from_com_form(1.0, hull.upper - 1e-9, 1e-9 * np.eye(3))
        assert np.min(fewer @ outside) > -1e-12
        assert np.min(cuts @ outside) < 0.0


def test_bodies_outside_the_shape_are_cut_off_though_they_are_in_its_box():
    shape = PayloadShape(Box(np.array([-0.06, -0.06, 0.06]), np.array([0.06, 0.06, 0.26])), 0.1)
    cuts, box = shape_cuts(shape, box_of(shape)), box_of(shape)
    light_and_far = from_com_form(0.5, [0.0, 0.0, 0.4], 0.001 * np.eye(3))
    heavy_and_near = from_com_form(2.5, [0.0, 0.0, 0.02], 0.02 * np.eye(3))
    light_and_wide = from_com_form(0.3, [0.0, 0.0, 0.16], 0.3 * 0.3**2 * np.eye(3))
    for body in (light_and_far, heavy_and_near, light_and_wide):
        assert is_physically_consistent(body) and box.contains(body)
        assert np.min(cuts @ body) < -1e-4
    crooked = from_com_form(1.0, [0.0, 0.0, 0.16], [[0.0081, 0.006, 0.0], [0.006, 0.0081, 0.0], [0.0, 0.0, 0.0141]])
    size = np.where(np.arange(10) < 4, 1e-3, 1.0)
    assert is_physically_consistent(crooked) and box.contains(crooked)
    assert np.min(shape_cuts(shape, Box.around(crooked, size).intersect(box)) @ crooked) < -1e-4


@pytest.mark.slow
@pytest.mark.parametrize("at", [0.5, 1.0])
def test_they_narrow_the_bounds_of_a_payload_and_keep_it(robot, tools, monkeypatch, at):
    """Point masses at corners of the shape are the extreme cases."""
    rng = np.random.default_rng(4)
    shape = robot.payload_prior.shape
    payload = from_com_form(1.8, shape.com.lower + at * shape.com.width, 1.8 * 1e-6 * np.eye(3))
    theta = sample_parameters(robot, rng, corner=True)
    block = tools.record(robot, theta, payload, tools.FourierMotion(robot, 3), 3.1)
    block = tools.measure(robot, block.q, block.v, block.tau, rng)
    found = []
    for cuts in (shape_cuts, lambda shape, box: np.zeros((0, 10))):
        monkeypatch.setattr(state, "shape_cuts", cuts)
        estimator = StreamingEstimator(robot, EstimatorSettings())
        assert not estimator.add(block)
        assert estimator.estimate().contains(payload)
        found.append(estimator.estimate())
    assert np.all(found[0].radius < 1.02 * found[1].radius)
    assert np.min(found[0].radius / found[1].radius) < 0.97
