"""Which payload model the controller gets, and that no model is ever made of data that contradict it."""

from dataclasses import replace

import numpy as np
import pytest
from procedure_doubles import make_estimate
from textbook import load_textbook

from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.procedure import IdentificationErrorCode, IdentificationFailed, ModelPolicy, PayloadModel
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload, light_payloads, weighed_payload


def estimate_of(robot, share: float, shift: float = 0.0, **changes) -> ParameterEstimate:
    """Intervals of a share of the prior's, moved by a share of its radius, with a value at their middle."""
    box = robot.payload_prior.box
    center = box.center + (shift + share - 1.0) * box.radius  # from the lower end on, where the weight is small
    values = {"values": center, "lower": center - share * box.radius, "upper": center + share * box.radius}
    return replace(make_estimate(1.0), **values, **changes)


def inside(robot, share: float) -> ParameterEstimate:
    """Intervals of a share of the prior's around its nominal payload, cut at the prior."""
    box, value = robot.payload_prior.box, robot.payload_prior.nominal
    lower, upper = (np.clip(value + k * share * box.radius, box.lower, box.upper) for k in (-1.0, 1.0))
    return replace(make_estimate(1.0), values=value, lower=lower, upper=upper)


@pytest.fixture
def policy(robot):
    return ModelPolicy(robot)


def test_it_begins_with_the_prior_as_the_driver_does(robot, policy):
    prior = robot.payload_prior
    assert policy.in_use.estimate is None and policy.in_use.box is prior.box
    np.testing.assert_array_equal(
        policy.in_use.nominal, choose_payload(robot, (robot.theta_box, prior.box), prior.nominal)
    )
    assert policy.for_plan(None) is policy.in_use and policy.for_chain(None, robot.home) is policy.in_use


def test_each_plan_gets_the_bounds_that_all_data_leave(robot, policy):
    wide, narrow = inside(robot, 0.5), inside(robot, 0.2)
    first = policy.for_plan(wide)
    np.testing.assert_array_equal(first.box.lower, wide.lower)
    assert policy.in_use.estimate is None  # as long as the controller has not accepted it
    policy.note_given(first)
    second = policy.for_plan(narrow)
    policy.note_given(second)
    again = policy.for_plan(wide)  # the latest word, but not all that is known
    np.testing.assert_array_equal(again.box.lower, second.box.lower)
    np.testing.assert_array_equal(again.box.upper, second.box.upper)
    np.testing.assert_array_equal((again.estimate.lower, again.estimate.upper), (again.box.lower, again.box.upper))
    assert again.box.contains(again.estimate.values)
    assert again.nominal is policy.in_use.nominal  # stays: a change would cost tracking bound


def test_the_nominal_payload_is_chosen_once_by_weighing():
    robot = load_textbook("kuka_lbr_iiwa14")
    policy, box = ModelPolicy(robot), robot.payload_prior.box
    lower, upper = box.lower.copy(), box.upper.copy()
    lower[:4], upper[:4] = [1.1, -0.15, -0.1, 0.04], [2.4, 0.25, 0.1, 0.7]
    weighed = replace(make_estimate(1.0), values=0.5 * (lower + upper), lower=lower, upper=upper)
    before = policy.in_use.nominal
    model = policy.for_chain(weighed, robot.home)
    boxes = (robot.theta_box, model.box)
    np.testing.assert_array_equal(model.nominal, weighed_payload(robot, boxes, before, robot.home))
    assert not np.array_equal(model.nominal, before)
    # The first plan was not found: what the controller has been given since stays.
    policy.note_given(model)
    assert policy.for_chain(weighed, robot.home + 1.0).nominal is model.nominal
    np.testing.assert_array_equal(policy.reset().nominal, before)


def test_the_final_nominal_payload_needs_the_least_feedback(robot, policy):
    policy.note_given(policy.for_chain(inside(robot, 0.5), robot.home))
    estimate, posture = inside(robot, 0.02), robot.home + 0.2
    final = policy.final(estimate, posture)
    boxes = (robot.theta_box, final.box)

    def need(payload):
        return (
            tracking_bound(robot, ControlModel.of_boxes(robot, boxes, payload), posture).torque / robot.limits.tau_held
        ).max()

    identified = choose_payload(robot, boxes, final.estimate.values)
    options = [policy.in_use.nominal, identified, *light_payloads(robot, boxes)]
    assert need(final.nominal) == min(map(need, options)) < need(identified)
    ControlModel.of_boxes(robot, boxes, final.nominal)  # one that a controller takes
    assert policy.final(estimate, None).estimate is not None  # where nobody says where the arm is


def test_the_nominal_payload_that_is_easiest_to_hold_takes_less_feedback_than_the_weighed_one(robot, policy):
    assert policy.easiest_to_hold(robot.home) is policy.in_use  # the prior, of which there is only one
    posture = robot.home + 0.2
    policy.note_given(policy.for_chain(inside(robot, 0.5), posture))
    easy = policy.easiest_to_hold(posture)
    boxes = (robot.theta_box, easy.box)

    def need(payload):
        bound = tracking_bound(robot, ControlModel.of_boxes(robot, boxes, payload), posture)
        return (bound.torque / robot.limits.tau_held).max()

    assert easy.box is policy.in_use.box and need(easy.nominal) < need(policy.in_use.nominal)
    before = policy.in_use.nominal
    policy.note_given(easy)
    assert policy.easiest_to_hold(posture) is easy
    # Its motions are less exact: from another posture the nominal payload is chosen as after weighing.
    narrower = inside(robot, 0.4)
    assert policy.for_chain(narrower, posture).nominal is easy.nominal
    elsewhere = policy.for_chain(narrower, robot.home)
    boxes = (robot.theta_box, elsewhere.box)
    np.testing.assert_array_equal(elsewhere.nominal, weighed_payload(robot, boxes, before, robot.home))
    assert not np.array_equal(elsewhere.nominal, easy.nominal)


def test_without_a_point_estimate_the_nominal_payload_stays(robot, policy):
    """The bounds hold all the same; found by a closed-loop trial."""
    estimate = replace(inside(robot, 0.1), values=np.full(10, np.nan))
    final = policy.final(estimate, robot.home)
    np.testing.assert_array_equal(final.nominal, policy.in_use.nominal)
    np.testing.assert_array_equal(final.box.lower, np.maximum(estimate.lower, policy.in_use.box.lower))


@pytest.mark.parametrize("may_tighten", [True, False])
def test_contradicting_data_raise_before_anything_can_be_sent(robot, may_tighten):
    in_use = ModelPolicy(robot).for_plan(inside(robot, 0.1))
    policy = ModelPolicy(robot, in_use, may_tighten)
    alarm = make_estimate(1.0, alarm="no payload agrees with the data")
    beside = estimate_of(robot, 0.1, shift=1.8)  # consistent in itself, and elsewhere than the model in use
    decisions = (
        policy.for_plan,
        policy.require_consistent,
        lambda estimate: policy.for_chain(estimate, robot.home),
        lambda estimate: policy.final(estimate, robot.home),
    )
    for estimate, text in ((alarm, "no payload agrees with the data"), (beside, "does not overlap the bounds in use")):
        for decide in decisions:
            with pytest.raises(IdentificationFailed, match=text) as caught:
                decide(estimate)
            assert caught.value.code is IdentificationErrorCode.INCONSISTENT
    assert policy.in_use is in_use


def test_intervals_that_only_touch_do_not_contradict(robot, policy):
    policy.note_given(policy.for_plan(inside(robot, 0.1)))
    edge = policy.in_use.box.upper
    touching = replace(make_estimate(1.0), values=edge, lower=edge, upper=edge)
    np.testing.assert_array_equal(policy.for_plan(touching).box.center, edge)


def test_a_policy_that_keeps_the_model_keeps_it(robot):
    in_use = PayloadModel.prior(robot)
    policy = ModelPolicy(robot, in_use, may_tighten=False)
    estimate = inside(robot, 0.1)
    assert policy.for_plan(estimate) is policy.for_chain(estimate, robot.home) is policy.final(estimate, None) is in_use
    assert policy.easiest_to_hold(robot.home) is in_use


def test_an_estimate_of_more_than_the_payload_makes_no_model(robot, policy):
    estimate = make_estimate(0.1, center=50.0, target="end_effector")
    for model in (policy.for_plan(estimate), policy.for_chain(estimate, robot.home), policy.final(estimate, None)):
        assert model is policy.in_use
    with pytest.raises(IdentificationFailed, match="alarm"):
        policy.for_plan(make_estimate(0.1, alarm="alarm", target="end_effector"))
