"""Moving with a known load: what planner and controller may assume, and data that say that it is not there."""

from dataclasses import replace

import numpy as np
import pytest
from procedure_doubles import make_estimate

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.calibration import empty_hand, reference_weight
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.procedure import IdentificationErrorCode, IdentificationFailed, KnownLoadPolicy, PayloadModel


def estimate_of(robot, mass_lower, mass_upper):
    """The prior, with another range of the mass."""
    box = robot.payload_prior.box
    lower, upper = box.lower.copy(), box.upper.copy()
    lower[0], upper[0] = mass_lower, mass_upper
    return replace(make_estimate(1.0), values=0.5 * (lower + upper), lower=lower, upper=upper)


def test_planner_and_controller_know_the_load(robot):
    policy = KnownLoadPolicy(robot, empty_hand())
    prior = PayloadModel.prior(robot)
    np.testing.assert_array_equal(policy.reset().box.upper, prior.box.upper)  # a goal begins with the prior
    model = policy.for_plan(estimate_of(robot, 0.0, 0.5))
    assert model.box.upper[0] == pytest.approx(0.02) and model.box.contains(np.zeros(10))
    assert np.all(model.box.width < 0.02 * prior.box.width)
    assert policy.for_plan(None) is policy.in_use
    weight = reference_weight(robot, 1.0, 0.01)
    model = KnownLoadPolicy(robot, weight).for_plan(estimate_of(robot, 0.6, 1.2))
    assert (model.box.lower[0], model.box.upper[0]) == pytest.approx((0.99, 1.01))
    body = from_com_form(1.0, weight.prior.shape.com.center, 1e-3 * np.eye(3))
    assert model.box.contains(body)


@pytest.mark.parametrize("range_of_mass", [(0.3, 0.9), (1.2, 1.4)])
def test_a_load_that_is_not_there_is_an_alarm(robot, range_of_mass):
    policy = KnownLoadPolicy(robot, reference_weight(robot, 1.0, 0.01))
    estimate = estimate_of(robot, *range_of_mass)
    for judge in (policy.require_consistent, policy.for_plan):
        with pytest.raises(
            IdentificationFailed, match=r"does not hold the stated load \(reference weight 1 kg"
        ) as error:
            judge(estimate)
        assert error.value.code is IdentificationErrorCode.INCONSISTENT
    with pytest.raises(IdentificationFailed, match="some alarm"):
        policy.require_consistent(make_estimate(0.1, alarm="some alarm"))


def test_a_load_beyond_the_prior_is_refused(robot):
    with pytest.raises(
        ParameterOutOfRange, match="inside the payload prior 'held_object' of the arm, which has 0 to 2.5"
    ):
        KnownLoadPolicy(robot, reference_weight(robot, 3.0, 0.01))
