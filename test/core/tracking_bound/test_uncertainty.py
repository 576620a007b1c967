from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from scipy.linalg import eigh
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.inertia import from_com_form, pseudo_inertia
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import PayloadPrior, PayloadShape
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.tracking_bound.inertia_columns import largest_of_several
from sysid_ros.core.tracking_bound.uncertainty import (
    PayloadSet,
    Vertices,
    candidate_sets,
    compute_inertia_ratio,
    inertia_ratios,
    inertial_uncertainties,
    magnitude,
    tighten,
)

SHAPE = PayloadShape(Box(np.array([-0.05, 0.02, -0.3]), np.array([0.1, 0.06, -0.1])), 0.08)
SAMPLES, N = 5, 7


def is_inside(payloads: PayloadSet, body: np.ndarray) -> bool:
    """Whether a body is in the convex hull of the vertices, up to the box."""
    vertices = payloads.vertices
    rows = np.concatenate([vertices.T, -vertices.T])
    limits = np.concatenate([body + payloads.radius, payloads.radius - body]) + 1e-7
    found = linprog(np.zeros(len(vertices)), rows, limits, np.ones((1, len(vertices))), [1.0], bounds=(0.0, None))
    return found.status == 0


def energies(bodies: np.ndarray, motions: np.ndarray) -> np.ndarray:
    """Twice the kinetic energy of bodies (K, 10) in motions (T, 6), (T, K)."""
    result = []
    for speed, turn in zip(motions[:, :3], motions[:, 3:], strict=True):
        x, y, z = turn
        field = np.column_stack([np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]), speed])  # velocity of a point (r, 1)
        result.append([np.trace(field @ pseudo_inertia(body) @ field.T) for body in bodies])
    return np.array(result)


def objects(rng, count):
    """Objects of the shape, many at the edges of what it allows."""
    for trial in range(count):
        com = rng.uniform(SHAPE.com.lower, SHAPE.com.upper)
        if trial % 2:
            com = np.where(rng.integers(0, 2, 3) == 1, SHAPE.com.lower, SHAPE.com.upper)
        axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        moments = [rng.uniform(0.0, 0.5, 3), [0.5, 0.5, 0.5], [1.0, 0.0, 0.0], np.zeros(3)][trial % 4]
        spread = SHAPE.gyration**2 * axes @ np.diag(moments) @ axes.T
        mass = (0.5, 2.0, rng.uniform(0.5, 2.0))[trial % 3]
        yield from_com_form(mass, com, mass * (np.trace(spread) * np.eye(3) - spread))


def test_objects_of_a_shape_are_enclosed():
    rng = np.random.default_rng(0)
    payloads = PayloadSet.of_shape((0.5, 2.0), SHAPE)
    motions = rng.normal(size=(40, 6)) * np.r_[0.2 * np.ones(3), np.ones(3)]
    lower, upper = energies(payloads.lower, motions).min(axis=1), energies(payloads.upper[0], motions).max(axis=1)
    closest = 0.0
    for body in objects(rng, 80):
        assert is_inside(payloads, body)
        energy = energies(body[None], motions)[:, 0]
        assert np.all(lower - 1e-12 <= energy) and np.all(energy <= upper + 1e-12)
        closest = max(closest, (energy / upper).max())
    assert closest > 0.95
    # What is not of the shape is not.
    assert not is_inside(payloads, from_com_form(2.5, SHAPE.com.center, 0.01 * np.eye(3)))
    assert not is_inside(payloads, from_com_form(2.0, SHAPE.com.upper + 0.05, 0.01 * np.eye(3)))
    assert not is_inside(payloads, from_com_form(2.0, SHAPE.com.center, 0.08 * np.eye(3)))


def test_objects_of_a_shape_in_a_box_are_enclosed():
    """Weighing tells the first moments: a heavier object is nearer, which the products of both ranges forget."""
    rng = np.random.default_rng(4)
    middle = from_com_form(1.0, SHAPE.com.center, 0.01 * np.eye(3))
    wide = np.full(10, 10.0)
    wide[0] = 0.0
    lower, upper = middle - wide, middle + wide
    lower[0], upper[0] = 0.5, 2.0
    lower[1:4], upper[1:4] = middle[1:4] - [0.02, 0.02, 0.04], middle[1:4] + [0.02, 0.02, 0.04]
    box = Box(lower, upper)
    payloads, products = PayloadSet.of_objects(box, SHAPE), PayloadSet.of_shape((0.5, 2.0), SHAPE)
    motions = rng.normal(size=(40, 6)) * np.r_[0.2 * np.ones(3), np.ones(3)]
    least, most = energies(payloads.lower, motions).min(axis=1), energies(payloads.upper[0], motions).max(axis=1)
    inside = [body for body in objects(rng, 3000) if box.contains(body)]
    for _ in range(200):  # at edges of the first moments
        mass = rng.uniform(0.5, 2.0)
        com = np.clip(rng.choice([lower[1:4], upper[1:4]]) / mass, SHAPE.com.lower, SHAPE.com.upper)
        body = from_com_form(mass, com, mass * SHAPE.gyration**2 * np.eye(3))
        inside += [body] if box.contains(body) else []
    assert len(inside) > 100
    closest = 0.0
    for body in inside:
        assert is_inside(payloads, body)
        energy = energies(body[None], motions)[:, 0]
        assert np.all(least - 1e-12 <= energy) and np.all(energy <= most + 1e-12)
        closest = max(closest, (energy / most).max())
    assert closest > 0.85
    assert np.mean(most / energies(products.upper[0], motions).max(axis=1)) < 0.8
    assert not is_inside(payloads, from_com_form(2.0, [0.0, 0.04, -0.3], 0.002 * np.eye(3)))


def test_no_objects_in_a_box_that_has_none():
    lower, upper = np.full(10, -10.0), np.full(10, 10.0)
    lower[:4], upper[:4] = [1.0, 0.5, -1.0, -1.0], [2.0, 1.0, 1.0, 1.0]  # the CoM is further than the shape allows
    assert PayloadSet.of_objects(Box(lower, upper), SHAPE) is None
    upper[0], lower[1] = 1.0, 0.05
    one_mass = PayloadSet.of_objects(Box(lower, upper), SHAPE)
    assert one_mass is not None and np.all(one_mass.vertices[:, 0] == 1.0)


def test_bodies_of_a_box_are_enclosed():
    rng = np.random.default_rng(1)
    nominal = from_com_form(1.5, [0.02, 0.0, -0.2], np.diag([0.02, 0.015, 0.012]))
    for share in (0.1, 0.8):
        box = Box.around(nominal, share * np.array([1.5, 0.1, 0.1, 0.3, 0.1, 0.03, 0.1, 0.03, 0.03, 0.03]))
        (payloads,) = candidate_sets(model_of(box, nominal), Box(np.zeros(10), np.zeros(10)))
        motions = rng.normal(size=(40, 6)) * np.r_[0.2 * np.ones(3), np.ones(3)]
        lower = energies(payloads.lower, motions).min(axis=1)
        upper = np.min([energies(one, motions).max(axis=1) for one in payloads.upper], axis=0)
        for trial in range(40):
            body = sample_payload(PayloadPrior(box, nominal), rng, corner=trial % 2 == 0)
            assert is_inside(payloads, body)
            energy = energies(body[None], motions)[:, 0]
            assert np.all(lower - 1e-12 <= energy) and np.all(energy <= upper + 1e-12)
        assert not is_inside(payloads, nominal + 1.2 * (box.upper - nominal))


def model_of(box, nominal):
    """A model of one joint that carries the payload."""
    theta = np.r_[from_com_form(1.0, np.zeros(3), 0.01 * np.eye(3)), np.zeros(4)]
    return ControlModel(theta, Box(theta, theta), nominal, box)


def test_tightening_keeps_every_body():
    rng = np.random.default_rng(2)
    nominal = from_com_form(1.0, np.zeros(3), np.diag([0.02, 0.05, 0.04]))
    box = Box(np.r_[-1.0, -np.ones(3), -0.1 * np.ones(6)], np.r_[2.0, np.ones(3), 0.1, 0.1, 0.3, 0.1, 0.1, 0.1])
    tight = tighten(box)
    assert tight.upper[6] == pytest.approx(0.2) and tight.lower[4] == 0.0 and tight.upper[5] == pytest.approx(0.05)
    for trial in range(200):
        assert tight.contains(sample_payload(PayloadPrior(box, nominal), rng, corner=trial % 2 == 0))


def test_a_shape_is_narrowed_by_the_box(robot):
    prior = robot.payload_prior
    free = candidate_sets(ControlModel.of_boxes(robot), Box(np.zeros(10), np.zeros(10)))[-1]
    box = prior.box.intersect(Box.around(prior.nominal, 0.2 * prior.box.width))
    known = candidate_sets(ControlModel.of_boxes(robot, (robot.theta_box, box)), Box(np.zeros(10), np.zeros(10)))
    assert len(known) == 2
    com = known[-1].vertices[:, 1:4] / known[-1].vertices[:, :1]
    assert np.all(np.ptp(com, axis=0) <= prior.shape.com.width + 1e-12) and np.ptp(com[:, 2]) > 0.0
    assert known[-1].vertices[:, 0].max() < free.vertices[:, 0].max()
    # A box that is not part of the prior's says nothing about the shape.
    wide = Box(prior.box.lower, prior.box.upper + 0.1)
    assert len(candidate_sets(ControlModel.of_boxes(robot, (robot.theta_box, wide)), wide)) == 1


@pytest.fixture(params=[1, 2, 60])
def offsets(request):
    """Of one vertex (which is its own center), of two, and of many, some of which are the same."""
    rng = np.random.default_rng(request.param)
    values = rng.normal(size=(request.param, 10)) * np.logspace(0, -4, 10)
    values[::7] = values[0]
    values[:, 3] = 0.0
    return values - values.mean(axis=0)


def test_lengths_and_entries_are_those_of_the_worst_vertex(offsets):
    rng = np.random.default_rng(1)
    parts, root = rng.normal(size=(SAMPLES, N, 10)), rng.normal(size=(SAMPLES, N, N))
    center, metric = rng.normal(size=(SAMPLES, N)), root @ root.swapaxes(1, 2)
    vectors = center[:, None] + np.einsum("kl,tal->tka", offsets, parts)
    lengths = np.sqrt(np.einsum("tka,tab,tkb->tk", vectors, metric, vectors))
    found = Vertices(offsets).largest_vectors(center, parts, metric)
    np.testing.assert_allclose(found[0], lengths.max(axis=1), rtol=1e-10)
    np.testing.assert_allclose(found[1], np.abs(vectors).max(axis=1), rtol=1e-10)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_largest_of_several_leaves_out_no_matrix_that_counts(size):
    """Nearly equal ones, very different ones, negative, equal and singular ones, and multiples of the identity."""
    rng = np.random.default_rng(3)
    matrices = rng.normal(size=(60, 30, N, N))
    matrices += matrices.swapaxes(2, 3)
    matrices[::5] = matrices[::5, :1] * (1.0 + 1e-9 * rng.normal(size=(12, 30, 1, 1)))
    matrices[1::5] *= np.logspace(0, -9, 30)[rng.permutation(30), None, None]
    matrices[2::5] -= 20.0 * np.eye(N)
    matrices[3::5] = np.eye(N) * rng.uniform(0.9999, 1.0, size=(12, 30, 1, 1))
    matrices[4::5, 1:] = matrices[4::5, :1]
    matrices[::7, :, :, 2] = matrices[::7, :, 2] = 0.0
    expected = np.linalg.eigvalsh(matrices).max(axis=(1, 2))
    np.testing.assert_allclose(largest_of_several(size * matrices), size * expected, rtol=1e-12, atol=1e-13 * size)
    np.testing.assert_array_equal(largest_of_several(np.zeros((2, 3, N, N))), 0.0)


def true_ratios(robot, model, q, theta, payload):
    """Smallest and largest generalised eigenvalue of (H, M)."""
    true, nominal = (
        ArmDynamics(robot, total, armature=True).inertia(q) for total in (add_payload(theta, payload), model.total)
    )
    return eigh(true, nominal, eigvals_only=True)[[0, -1]]


@pytest.fixture(scope="module")
def narrow(robot):
    """A payload known to about 15 %."""
    payload = robot.payload_prior.nominal
    radius = np.array([0.2, 0.01, 0.01, 0.04, 0.01, 0.003, 0.01, 0.003, 0.003, 0.003])
    return ControlModel(robot.theta_nominal, robot.theta_box, payload, Box.around(payload, radius))


def ranges(robot, model, q):
    """The narrowest range of all descriptions of the uncertainty, (S,) each."""
    found = [inertia_ratios(robot, one, q) for one in inertial_uncertainties(robot, model)]
    return np.max([low for low, _ in found], axis=0), np.min([high for _, high in found], axis=0)


def test_prior_covers_every_arm_and_payload(robot):
    model = ControlModel.of_boxes(robot)
    rng = np.random.default_rng(1)
    q = robot.home + rng.uniform(-1.0, 1.0, size=(6, robot.n))
    lower, upper = ranges(robot, model, q)
    assert np.all(lower > 0.4) and np.all(upper < 3.0)
    reached = np.array([9.0, 0.0])
    for trial in range(150):
        theta = sample_parameters(robot, rng, corner=trial % 2 == 0)
        payload = sample_payload(robot.payload_prior, rng, corner=trial % 3 > 0) if trial % 5 else np.zeros(10)
        for position, low, high in zip(q, lower, upper, strict=True):
            smallest, biggest = true_ratios(robot, model, position, theta, payload)
            assert low <= smallest and biggest <= high
            reached = np.array([min(reached[0], smallest / low), max(reached[1], biggest / high)])
    assert reached[0] < 1.1 and reached[1] > 0.9
    heavy = from_com_form(6.0, [0.0, 0.0, -0.4], 0.1 * np.eye(3))
    assert true_ratios(robot, model, q[0], robot.theta_nominal, heavy)[1] > upper[0]


def test_a_box_alone_covers_every_body_in_it(robot):
    """Table I of SAFE-ID: last body and payload together, of which the box is all that is known."""
    prior, last = robot.prior("safe_id_table_1"), robot.inertial_slice(robot.n)
    body = robot.theta_nominal[last]
    arm = Box(*(np.where(np.arange(14 * robot.n) // 10 == robot.n - 1, robot.theta_nominal, bound)
                for bound in (robot.theta_box.lower, robot.theta_box.upper)))  # fmt: skip
    model = ControlModel(
        robot.theta_nominal, arm, prior.nominal - body, Box(prior.box.lower - body, prior.box.upper - body)
    )
    rng = np.random.default_rng(4)
    q = robot.home + rng.uniform(-1.0, 1.0, size=(2, robot.n))
    lower, upper = ranges(robot, model, q)
    reached = np.array([9.0, 0.0])
    found = 0
    while found < 150:
        mass, com = rng.choice([1.2, 5.2]), rng.uniform(-0.4, 0.4, 3)
        root = rng.normal(size=(3, 3)) * rng.choice([1e-4, 0.1, 0.2])
        total = from_com_form(mass, com, np.trace(root @ root.T) * np.eye(3) - root @ root.T)
        if not prior.box.contains(total):
            continue
        found += 1
        for position, low, high in zip(q, lower, upper, strict=True):
            smallest, biggest = true_ratios(robot, model, position, robot.theta_nominal, total - body)
            assert low <= smallest and biggest <= high
            reached = np.array([min(reached[0], smallest / low), max(reached[1], biggest / high)])
    assert reached[0] < 1.7 and reached[1] > 0.6


def test_narrow_boxes_give_a_narrow_range(robot, narrow):
    rng = np.random.default_rng(2)
    q = robot.home + rng.uniform(-1.0, 1.0, size=(3, robot.n))
    lower, upper = ranges(robot, narrow, q)
    assert np.all(lower > 0.65) and np.all(upper < 1.4)
    for trial in range(60):
        theta = sample_parameters(robot, rng, corner=trial % 2 == 0)
        payload = sample_payload(PayloadPrior(narrow.payload_box, narrow.payload), rng, corner=True)
        for position, low, high in zip(q, lower, upper, strict=True):
            smallest, biggest = true_ratios(robot, narrow, position, theta, payload)
            assert low <= smallest and biggest <= high


def test_a_nominal_payload_that_leaves_no_inertia_is_refused(robot):
    payload = from_com_form(-50.0, [0.0, 0.0, -0.2], 0.1 * np.eye(3))
    uncertainty = replace(inertial_uncertainties(robot, ControlModel.of_boxes(robot))[-1], payload=payload)
    with pytest.raises(ParameterOutOfRange, match=r"nominal payload \[-50.0, .*positive definite"):
        inertia_ratios(robot, uncertainty, robot.home[None])


def test_slopes_cover_positions_nearby(robot):
    model = ControlModel.of_boxes(robot)
    rng = np.random.default_rng(3)
    uncertainty = inertial_uncertainties(robot, model)[-1]
    ratio = compute_inertia_ratio(robot, uncertainty, robot.home[None], [0])
    radius = np.full(robot.n, 0.02)
    near = robot.home + rng.uniform(-1.0, 1.0, size=(20, robot.n)) * radius
    lower, upper = inertia_ratios(robot, uncertainty, near)
    low, high = ratio.near(1.2 * radius)
    assert np.all(low <= lower) and np.all(upper <= high)
    assert high < ratio.upper + 0.1


@pytest.mark.parametrize("share", [1.0, 0.075])
def test_vertices_that_are_left_out_of_slopes_do_not_count(robot, share):
    prior = robot.payload_prior
    box = Box.around(prior.nominal, share * prior.box.width).intersect(prior.box)
    uncertainty = inertial_uncertainties(robot, ControlModel.of_boxes(robot, (robot.theta_box, box), prior.nominal))[-1]
    ratio = compute_inertia_ratio(robot, uncertainty, robot.home[None], [0])
    steps = 0.02 * np.concatenate([np.eye(robot.n), -np.eye(robot.n)])
    at, beside = (np.stack(inertia_ratios(robot, uncertainty, q)) for q in (robot.home[None], robot.home + steps))
    slopes = np.abs(beside - at).reshape(2, 2, robot.n).max(axis=1) / 0.02
    np.testing.assert_allclose([ratio.lower_slope, ratio.upper_slope], slopes, atol=1e-3)


def test_magnitude_is_the_matrix_absolute_value():
    x = np.random.default_rng(4).normal(size=(5, 4, 4))
    x += x.transpose(0, 2, 1)
    np.testing.assert_allclose(magnitude(x) @ magnitude(x), x @ x, atol=1e-12)
    assert np.all(np.linalg.eigvalsh(magnitude(x)) >= 0.0)


@pytest.mark.parametrize("name", ["ur5e", "franka_fr3"])
def test_inertias_of_arms_known_to_a_share_are_between_their_bounds(name):
    """Against Pinocchio's own inertia of random bodies at the edge of the share, which come close to both bounds."""
    share = 0.2
    robot, rng, none = load_robot(name, known_within=share), np.random.default_rng(0), np.zeros(10)
    boxes = robot.theta_box, Box(none, none)
    uncertainty = inertial_uncertainties(robot, ControlModel.of_boxes(robot, boxes, none))[0]
    q = rng.uniform(-2.0, 2.0, (8, robot.n))
    lower, upper = inertia_ratios(robot, uncertainty, q)
    assert np.all(lower >= 1.0 - share - 1e-6) and np.all(upper <= 1.0 + share + 1e-6)
    nominal = pinocchio_inertias(robot, robot.theta_nominal, q)
    smallest, largest = np.inf, 0.0
    for trial in range(60):
        theta = sample_parameters(robot, rng, trial % 2 == 0)
        for i, inertia in enumerate(pinocchio_inertias(robot, theta, q)):
            ratios = eigh(inertia, nominal[i], eigvals_only=True)
            assert lower[i] <= ratios[0] and ratios[-1] <= upper[i]
            smallest, largest = min(smallest, ratios[0]), max(largest, ratios[-1])
    assert smallest < 1.0 - 0.98 * share and largest > 1.0 + 0.98 * share
    # The boxes that follow say much less: most of their corners are no body of that share.
    by_boxes = replace(uncertainty, energies=None)
    assert inertia_ratios(robot, by_boxes, q)[0].min() < 0.9 * lower.min()


def pinocchio_inertias(robot, theta, q):
    """Inertia matrices with armature, by another way than the columns."""
    model = robot.pin_model.copy()
    for body in range(1, robot.n + 1):
        model.inertias[body] = pin.Inertia.FromDynamicParameters(theta[robot.inertial_slice(body)])
    data, armature = model.createData(), np.diag(robot.friction(theta)[:, 2])
    inertias = [np.triu(pin.crba(model, data, one)) for one in q]
    return [one + np.triu(one, 1).T + armature for one in inertias]


def test_a_payload_known_as_body_is_added_to_an_arm_known_to_a_share():
    robot, rng = load_robot("ur5e", known_within=0.2), np.random.default_rng(1)
    nominal = from_com_form(1.0, [0.0, 0.0, 0.1], 0.01 * np.eye(3))
    box = Box.around(nominal, 0.1 * np.abs(nominal) + 1e-4)
    options = inertial_uncertainties(robot, ControlModel.of_boxes(robot, (robot.theta_box, box), nominal))
    q = rng.uniform(-2.0, 2.0, (4, robot.n))
    reference = pinocchio_inertias(robot, add_payload(robot.theta_nominal, nominal), q)
    for uncertainty in options:
        lower, upper = inertia_ratios(robot, uncertainty, q)
        for trial in range(20):
            payload = sample_payload(PayloadPrior(box, nominal), rng, trial % 2 == 0)
            theta = add_payload(sample_parameters(robot, rng, trial % 2 == 0), payload)
            for i, inertia in enumerate(pinocchio_inertias(robot, theta, q)):
                ratios = eigh(inertia, reference[i], eigvals_only=True)
                assert lower[i] <= ratios[0] and ratios[-1] <= upper[i]
