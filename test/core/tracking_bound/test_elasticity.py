"""The tracking bound of arms with elastic joints: where it is given, and what the gears' deflection adds to it."""

from dataclasses import replace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.possible import require_certifiable
from sysid_ros.core.common.box import Box
from sysid_ros.core.control import build_controller
from sysid_ros.core.control.gains import default_gains
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import PositionSide
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.nominal_payload import best_payload
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable


@pytest.fixture(scope="module")
def gen3():
    return load_textbook("kinova_gen3", is_elastic=True)


def known(robot):
    payload = 0.4 * robot.payload_prior.nominal
    around = Box.around(payload, 0.1 * np.abs(payload) + 1e-3)
    return ControlModel.of_boxes(robot, (robot.theta_box, around), payload)


def test_motors_are_where_they_are_measured_and_links_are_off_by_the_deflection(gen3):
    settings = build_controller("robust", gen3).settings
    rigid = tracking_bound(replace(gen3, elasticity=None), known(gen3), gen3.home, settings)
    motor = tracking_bound(gen3, known(gen3), gen3.home, settings)
    softest = 0.7 * gen3.elasticity.stiffness
    np.testing.assert_allclose(motor.position - rigid.position, gen3.limits.tau_max / softest)
    np.testing.assert_allclose(motor.take_over - rigid.take_over, gen3.limits.tau_max / softest)
    np.testing.assert_allclose(motor.velocity - rigid.velocity, gen3.elasticity.deflection_rate)
    np.testing.assert_array_equal(motor.torque, rigid.torque)
    assert "elastic" in motor.claims and "elastic" not in rigid.claims
    damped = replace(gen3.elasticity, position_side=PositionSide.LINK, torque_damping=np.full(7, 0.01))
    link = tracking_bound(replace(gen3, elasticity=damped), known(gen3), gen3.home, replace(settings, bandwidth=63.0))
    plain = tracking_bound(replace(gen3, elasticity=None), known(gen3), gen3.home, replace(settings, bandwidth=63.0))
    np.testing.assert_array_equal(link.position, plain.position)


def test_there_is_no_bound_where_the_loop_of_elastic_joints_has_no_gain_to_spare(gen3):
    with pytest.raises(
        BoundNotAvailable, match="with elastic joints the loop at .* does not survive 1.25 times its gain"
    ):
        tracking_bound(gen3, known(gen3), gen3.home, RobustSettings())
    assert (
        tracking_bound(replace(gen3, elasticity=None), known(gen3), gen3.home, RobustSettings()).position.max() < 0.01
    )


def test_an_elastic_arm_is_assumed_to_have_the_gains_of_the_rule_where_none_are_named(gen3):
    by_rule = build_controller("robust", gen3).settings
    assert Assumptions.of_payload(gen3).control_law == by_rule != RobustSettings()
    assert Assumptions.of_payload(replace(gen3, elasticity=None)).control_law == RobustSettings()
    model = known(gen3)
    np.testing.assert_array_equal(
        tracking_bound(gen3, model, gen3.home).torque, tracking_bound(gen3, model, gen3.home, by_rule).torque
    )
    require_certifiable(gen3)  # with the gains of a rigid arm no motion had a bound


def test_the_nominal_payload_of_an_elastic_arm_is_chosen_by_the_bounds_that_it_has(gen3):
    boxes = gen3.theta_box, known(gen3).payload_box
    proposed = [2.0 * known(gen3).payload, known(gen3).payload]

    def use(payload):
        bound = tracking_bound(gen3, ControlModel.of_boxes(gen3, boxes, payload), gen3.home)
        return (bound.torque / gen3.limits.tau_max).max()

    assert use(proposed[1]) < use(proposed[0])
    np.testing.assert_array_equal(best_payload(gen3, boxes, proposed, gen3.home), proposed[1])


def test_an_elastic_gen3_is_held_with_any_object_at_its_fingertips():
    """With the gains of elastic joints, and not with any object of the default prior."""
    near, wide = (load_textbook(f"kinova_gen3_2f85:elastic{prior}") for prior in (":at_fingertips", ""))
    settings = default_gains(near)
    models = [ControlModel.of_boxes(one, None, Assumptions.of_payload(one).nominal) for one in (near, wide)]
    assert np.all(tracking_bound(near, models[0], near.home, settings).position < 0.05)
    with pytest.raises(BoundNotAvailable):
        tracking_bound(wide, models[1], wide.home, settings)
