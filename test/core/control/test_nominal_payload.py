"""The payload the controller starts with."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.control import ControlModel, choose_payload, tracking_bound
from sysid_ros.core.model.box import Box


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
