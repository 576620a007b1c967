"""Enclosures of the payload's set against random bodies: membership by linear programs, energies by random motions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.inertia import from_com_form, pseudo_inertia
from sysid_ros.core.model.robot import PayloadPrior, PayloadShape
from sysid_ros.core.model.sampling import sample_payload
from sysid_ros.core.tracking_bound.uncertainty import PayloadSet, candidate_sets, tighten

SHAPE = PayloadShape(Box(np.array([-0.05, 0.02, -0.3]), np.array([0.1, 0.06, -0.1])), 0.08)


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
