"""The payload in the frames people use: every derived bound by sampling, frames against Pinocchio."""

import dataclasses

import numpy as np
import pinocchio as pin
import pytest
from urdf_parser_py.urdf import URDF

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.model import inertia
from sysid_ros.core.model.robot import PayloadShape, TurnedBox, frame_placement
from sysid_ros.core.model.sampling import sample_payload
from sysid_ros.reports.payload import (
    Bounded,
    felt_torques,
    notices,
    payload_parameters,
    summarize,
    summarize_behind_flange,
    summarize_payload,
    tool_parameters,
)


def _consistent_points(rng, estimate, count=300):
    """Physically consistent parameters inside the bounds, at their corners too."""
    points = []
    while len(points) < count:
        spread = rng.uniform(-1, 1, 10) if rng.random() < 0.5 else rng.choice([-1.0, 1.0], 10)
        theta = (
            estimate.values
            + np.where(spread > 0, estimate.upper - estimate.values, estimate.values - estimate.lower)
            * spread
            * rng.random()
        )
        if inertia.is_physically_consistent(theta):
            points.append(theta)
    return points


@pytest.mark.parametrize("frame", [None, "end_effector_link"])
def test_derived_bounds_contain_every_body_inside(result, frame):
    summary = summarize_payload(result, frame)
    rotation, translation = frame_placement(result.robot, "end_effector_link") if frame else (np.eye(3), np.zeros(3))
    joint_in_frame = pin.SE3(rotation, translation).inverse()
    rng = np.random.default_rng(1)
    for theta in _consistent_points(rng, result.estimate):
        body = joint_in_frame.act(pin.Inertia.FromDynamicParameters(theta))
        assert summary.parameters.contains(body.toDynamicParameters()).all()
        assert summary.mass.contains(body.mass).all()
        assert summary.com.contains(body.lever).all()
        assert summary.inertia_com.contains(body.inertia).all()
        assert summary.principal_moments.contains(np.linalg.eigvalsh(body.inertia)).all()


def test_derived_bounds_use_the_shape_of_the_prior(robot):
    """Bounds as wide as the prior's box: every object of the prior inside, and no more than its shape allows."""
    prior, rng = robot.payload_prior, np.random.default_rng(2)
    box, shape = prior.box, prior.shape
    known = Bounded(prior.nominal, np.append(1.0, box.lower[1:]), box.upper)
    placement = frame_placement(robot, "end_effector_link")
    with_shape = summarize(known, placement, "end_effector_link", shape)
    without = summarize(known, placement, "end_effector_link")
    limit = 2.5 * shape.gyration**2
    assert (
        np.all(with_shape.principal_moments.upper <= limit * (1 + 1e-12)) and limit < without.principal_moments.upper[0]
    )
    assert np.all(with_shape.com.width <= shape.com.width.max() * (1 + 1e-9))
    assert np.all(with_shape.com.width < without.com.width)
    for k in range(200):
        theta = sample_payload(prior, rng, corner=k % 2 == 0)
        if theta[0] < 1.0:
            continue
        body = pin.SE3(*placement).inverse().act(pin.Inertia.FromDynamicParameters(theta))
        slack = 1e-12
        for found, truth in (
            (with_shape.com, body.lever),
            (with_shape.inertia_com, body.inertia),
            (with_shape.principal_moments, np.linalg.eigvalsh(body.inertia)),
        ):
            assert np.all((found.lower - slack <= truth) & (truth <= found.upper + slack))


def test_the_centre_of_mass_of_a_turned_tool_is_no_wider_than_its_prior(robot):
    """Seen along the axes of the joint and back its box would be wider."""
    prior, rotation = robot.payload_prior, rotation_from_rpy([0.4, 0.5, 0.6])
    own = Box(np.array([-0.06, -0.06, 0.06]), np.array([0.06, 0.06, 0.26]))
    hull = Box.around(rotation @ own.center, np.abs(rotation) @ own.radius)
    known = Bounded(prior.nominal, np.append(1.0, np.full(9, -9.0)), np.append(2.5, np.full(9, 9.0)))
    for turned, width in ((TurnedBox(rotation, own), own.width), (None, np.abs(rotation.T) @ hull.width)):
        shape = PayloadShape(hull, 0.1, turned)
        com = summarize(known, (rotation, np.array([0.0, 0.0, 0.1])), "tool", shape).com
        np.testing.assert_allclose(com.width, width, rtol=1e-9)
    assert np.all(com.width > 1.2 * own.width)


def test_moving_the_centre_of_mass_keeps_the_size_of_its_bounds(result):
    at_joint, at_tool = summarize_payload(result), summarize_payload(result, "end_effector_link")
    rotation = frame_placement(result.robot, "end_effector_link")[0]
    assert np.allclose(at_tool.com.width, np.abs(rotation.T) @ at_joint.com.width, rtol=1e-9)


def test_principal_axes_diagonalise_the_inertia_and_are_right_handed(result):
    summary = summarize_payload(result, "end_effector_link")
    axes, matrix = summary.principal_axes, summary.inertia_com.values
    assert np.allclose(axes.T @ matrix @ axes, np.diag(summary.principal_moments.values), atol=1e-12)
    assert np.linalg.det(axes) == pytest.approx(1.0)


def test_a_mass_that_may_be_zero_leaves_the_centre_of_mass_unbounded(result):
    estimate = result.estimate
    lower = estimate.lower.copy()
    lower[0] = 0.0
    parameters = Bounded(estimate.values, lower, estimate.upper)
    summary = summarize(parameters, frame_placement(result.robot, "end_effector_link"), "tool")
    assert np.all(np.isinf(summary.com.width)) and np.all(np.isfinite(summary.com.values))
    assert np.all(summary.principal_moments.lower == 0.0) and np.all(np.isinf(summary.principal_moments.upper))


def test_tool_is_everything_behind_the_flange(robot):
    """Against a walk over the URDF with the fingers at zero."""
    urdf = URDF.from_xml_string(robot.urdf[: robot.urdf.rindex("</robot>")] + "</robot>")
    placements = {robot.flange_frame: pin.SE3(*frame_placement(robot, robot.flange_frame))}
    expected = np.zeros(10)
    pending = [robot.flange_frame]
    while pending:
        parent = pending.pop()
        for name, child in urdf.child_map.get(parent, []):
            origin = urdf.joint_map[name].origin
            pose = pin.SE3(pin.rpy.rpyToMatrix(*(origin.rpy or [0, 0, 0])), np.array(origin.xyz or [0, 0, 0]))
            placements[child] = placements[parent] * pose
            pending.append(child)
            body = urdf.link_map[child].inertial
            if body is not None:
                turn = pin.SE3(pin.rpy.rpyToMatrix(*body.origin.rpy), np.array(body.origin.xyz))
                own = turn.act(pin.Inertia(body.mass, np.zeros(3), np.array(body.inertia.to_matrix())))
                expected += placements[child].act(own).toDynamicParameters()
    assert expected[0] > 0.5
    assert np.allclose(tool_parameters(robot), expected, rtol=1e-6, atol=1e-8)


def test_bounds_of_all_behind_the_flange_contain_every_payload_with_the_tool(result):
    """What is known of the payload's shape says nothing of the tool, near which a light payload leaves the CoM."""
    robot, rng = result.robot, np.random.default_rng(8)
    box, tool = robot.payload_prior.box, tool_parameters(robot)
    assert robot.payload_prior.shape is not None and result.is_rigorous
    ends = {"values": robot.payload_prior.nominal, "lower": box.lower, "upper": box.upper}
    result = dataclasses.replace(result, estimate=dataclasses.replace(result.estimate, **ends))
    both, alone = summarize_behind_flange(result), summarize_payload(result, robot.flange_frame)
    placement = pin.SE3(*frame_placement(robot, robot.flange_frame)).inverse()
    outside = 0
    for k in range(200):
        theta = sample_payload(robot.payload_prior, rng, corner=k % 2 == 0)
        body = placement.act(pin.Inertia.FromDynamicParameters(theta + tool))
        for found, truth in ((both.mass, body.mass), (both.com, body.lever), (both.inertia_com, body.inertia)):
            assert np.all((found.lower - 1e-12 <= truth) & (truth <= found.upper + 1e-12))
        outside += not np.all(alone.com.contains(body.lever))
    assert outside > 10 and np.all(both.com.width < alone.com.width + 1e-9)


def test_payload_of_an_end_effector_estimate_is_without_the_last_body(result):
    robot = result.robot
    last = robot.inertial_slice(robot.n)
    nominal, box = robot.theta_nominal[last], robot.theta_box
    estimate = dataclasses.replace(
        result.estimate,
        target="end_effector",
        values=result.estimate.values + nominal,
        lower=result.estimate.lower + nominal,
        upper=result.estimate.upper + nominal,
    )
    payload = payload_parameters(dataclasses.replace(result, estimate=estimate))
    assert np.allclose(payload.values, result.estimate.values)
    assert np.allclose(payload.width, result.estimate.upper - result.estimate.lower + box.width[last])


def test_torques_that_a_wrong_load_explains_are_bounded_by_those_of_any_body_inside(result):
    robot, rng = result.robot, np.random.default_rng(4)
    load, q = summarize_payload(result, robot.tool_frame), robot.home + rng.uniform(-0.5, 0.5, robot.n)
    assumed = load.parameters.values + 0.1 * np.abs(load.parameters.values)
    bound = felt_torques(robot, load, assumed, q)

    def weight(parameters):  # by Pinocchio, with the body in place of the last link
        model, (rotation, translation) = robot.pin_model.copy(), frame_placement(robot, robot.tool_frame)
        for k in range(1, model.njoints):
            model.inertias[k] = pin.Inertia.Zero()
        # Negative masses are no bodies for it, but the torque is linear.
        theta = inertia.transform_parameters(parameters, rotation, translation)
        model.inertias[robot.n] = pin.Inertia(theta[0], theta[1:4] / theta[0], np.zeros((3, 3)))
        return pin.computeGeneralizedGravity(model, model.createData(), q)

    corners = np.where(rng.random((400, 10)) < 0.5, load.parameters.lower, load.parameters.upper)
    felt = np.array([np.abs(weight(corner) - weight(assumed)) for corner in corners])
    assert np.all(felt <= bound * (1.0 + 1e-9) + 1e-12) and np.all(felt.max(axis=0) >= 0.95 * bound - 1e-12)


def test_notices_name_what_the_numbers_give_rise_to(result):
    assert notices(result) == result.warnings
    estimate = dataclasses.replace(result.estimate, method="sensitivity", is_guaranteed=False)
    heavy = dataclasses.replace(result, robot=dataclasses.replace(result.robot, rated_payload=1.0), estimate=estimate)
    texts = "\n".join(notices(heavy))
    assert "not guaranteed to contain the truth" in texts and "is above the arm's rated payload of 1 kg" in texts
    wrong = dataclasses.replace(result, truth=result.truth + np.eye(10)[0])
    assert notices(wrong)[-1].endswith("OUTSIDE the bounds of m: the payload prior 'held_object' excludes it")
    allowed = dataclasses.replace(result, truth=0.5 * result.truth)
    assert "OUTSIDE the bounds of m" in notices(allowed)[-1] and notices(allowed)[-1].endswith("or it is a bug")
