"""The payload the controller starts with."""

from __future__ import annotations

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.common.box import Box
from sysid_ros.core.control import ControlModel, RobustController
from sysid_ros.core.regressors.rest_torque import largest_rest_torque
from sysid_ros.core.tracking_bound import BoundNotAvailable, choose_payload
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.nominal_payload import (
    counterweights,
    easiest_payload,
    light_payloads,
    weighed_payload,
)


def test_a_payload_that_is_known_is_kept(robot):
    payload = robot.payload_prior.nominal
    box = Box.around(payload, 0.05 * robot.payload_prior.box.width)
    np.testing.assert_array_equal(choose_payload(robot, (robot.theta_box, box), payload), payload)


def test_an_unknown_payload_is_taken_to_be_light(robot):
    prior = robot.payload_prior
    chosen = choose_payload(robot)
    assert prior.box.contains(chosen) and 0.0 < chosen[0] < 0.3 * prior.box.upper[0]
    bounds = [
        tracking_bound(robot, ControlModel.of_boxes(robot, payload=x), robot.home) for x in (chosen, prior.nominal)
    ]
    assert np.all(bounds[0].torque < 0.9 * bounds[1].torque)
    assert bounds[0].inertia_ratios[0] > 0.7


def test_a_box_with_a_body_that_may_be_lighter_than_the_gripper(robot):
    """Table I of SAFE-ID, which describes last body and payload together."""
    prior, body = robot.prior("safe_id_table_1"), robot.theta_nominal[robot.inertial_slice(robot.n)]
    box = Box(prior.box.lower - body, prior.box.upper - body)
    chosen = choose_payload(robot, (robot.theta_box, box), prior.nominal - body)
    assert box.contains(chosen)
    # If the payload is a body of its own, it can be held.
    own = Box(np.r_[0.0, box.lower[1:]], box.upper)
    chosen = choose_payload(robot, (robot.theta_box, own), np.clip(prior.nominal - body, own.lower, own.upper))
    bound = tracking_bound(robot, ControlModel.of_boxes(robot, (robot.theta_box, own), chosen), robot.home)
    assert np.all(np.degrees(bound.position) < 0.5)


def test_a_payload_that_was_weighed_lets_a_heavy_duty_arm_move():
    lbr = load_textbook("kuka_lbr_iiwa14")
    prior = lbr.payload_prior.box
    lower, upper = prior.lower.copy(), prior.upper.copy()
    lower[:4], upper[:4] = [1.1, -0.15, -0.1, 0.04], [2.4, 0.25, 0.1, 0.7]
    boxes, before = (lbr.theta_box, Box(lower, upper)), choose_payload(lbr)
    chosen = weighed_payload(lbr, boxes, before, lbr.home)
    assert not np.array_equal(chosen, before) and 0.0 < chosen[0] < lower[0]
    bounds = [tracking_bound(lbr, ControlModel.of_boxes(lbr, boxes, x), lbr.home) for x in (chosen, before)]
    assert bounds[0].position.max() < 0.75 * bounds[1].position.max()
    assert bounds[0].torque.max() < bounds[1].torque.max()
    with pytest.raises(BoundNotAvailable):  # without weighing
        tracking_bound(lbr, ControlModel.of_boxes(lbr, payload=before), lbr.home)


def test_a_nominal_payload_that_is_good_enough_stays(robot):
    boxes = (robot.theta_box, robot.payload_prior.box)
    present = choose_payload(robot)
    np.testing.assert_array_equal(weighed_payload(robot, boxes, present, robot.home), present)
    end_effector = robot.prior("safe_id_table_1").box
    body = robot.theta_nominal[robot.inertial_slice(robot.n)]
    boxes = (robot.theta_box, Box(end_effector.lower - body, end_effector.upper - body))
    np.testing.assert_array_equal(weighed_payload(robot, boxes, present, robot.home), present)


@pytest.mark.parametrize(
    "posture", [[-2.6, -1.18, 1.89, 0.42, -2.55, -0.28, -0.13], [0.86, -1.03, -2.88, -2.48, 1.97, 1.73, 0.67]]
)
def test_the_payload_that_is_easiest_to_hold_leaves_the_most_torque(robot, posture):
    """Of all that are tried, with the weight that is held; a counterweight where joints near the base decide."""
    prior, posture = robot.payload_prior.box, np.array(posture)
    lower, upper = prior.lower.copy(), prior.upper.copy()
    lower[:4], upper[:4] = [0.2, -0.05, -0.05, -0.15], [0.8, 0.05, 0.04, -0.04]
    boxes = (robot.theta_box, Box(lower, upper))
    present = choose_payload(robot, boxes)
    needed = largest_rest_torque(robot, boxes, posture)

    def use(payload):
        bound = tracking_bound(robot, ControlModel.of_boxes(robot, boxes, payload), posture)
        return ((needed + bound.torque) / robot.limits.tau_held).max()

    found = easiest_payload(robot, boxes, present, posture)
    tried = [present, *light_payloads(robot, boxes), *counterweights(robot, boxes)]
    assert use(found) == min(map(use, tried)) < use(present)
    assert found[0] < 0.0
    controller = RobustController(robot)  # one that a controller takes
    controller.set_model(robot.theta_nominal, boxes[0], found, boxes[1])
    rest = np.zeros(robot.n)
    assert np.all(np.isfinite(controller.compute(posture, rest, posture, rest, rest)))


def test_counterweights_leave_a_body_and_there_are_none_for_what_is_a_body_only_with_the_last_one(robot):
    body = robot.theta_nominal[robot.inertial_slice(robot.n)]
    for payload in counterweights(robot, (robot.theta_box, robot.payload_prior.box)):
        assert 0.0 < body[0] + payload[0] < body[0]
    end_effector = robot.prior("safe_id_table_1").box
    assert counterweights(robot, (robot.theta_box, Box(end_effector.lower - body, end_effector.upper - body))) == []


def test_the_shares_of_the_feedback_torque_add_up(robot):
    bound = tracking_bound(robot, ControlModel.of_boxes(robot), robot.home)
    np.testing.assert_allclose(sum(bound.torque_shares.values()), bound.torque, rtol=1e-12)
    assert all(np.all(part >= 0.0) for part in bound.torque_shares.values())
    assert {"friction", "sensors", "coupling"} <= set(bound.torque_shares)
