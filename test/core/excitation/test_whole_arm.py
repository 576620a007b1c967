"""Proven excitation of a whole arm: what is certified, sequences, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.verify import verify
from sysid_ros.core.collision.clearance import build_scene_model, pair_distances, sphere_centers
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.excitation import whole_arm
from sysid_ros.core.excitation.model import NoExcitationFound
from sysid_ros.core.excitation.planner import plan_excitation
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.excitation.whole_arm import plan_arm_excitation
from sysid_ros.core.model.loader import load_robot

pytestmark = pytest.mark.slow
EMPTY = Box(np.zeros(10), np.zeros(10))
FAST = {"starts": 1, "max_iterations": 40, "time_budget": 600.0}


@pytest.fixture(scope="module")
def med7():
    return load_textbook("kuka_lbr_med7")


@pytest.fixture(scope="module")
def assumptions(med7):
    scene = Scene(ground_height=0.0, payload_spheres=())
    return Assumptions(med7, (med7.theta_box, EMPTY), np.zeros(10), scene)


@pytest.fixture(scope="module")
def two(assumptions, med7):
    """Two motions of 8 s, after few iterations."""
    return plan_arm_excitation(assumptions, med7.home, ExcitationSettings.for_arm(8.0, **FAST), motions=2)


def test_every_motion_is_certified_with_its_own_tracking_bound(two, assumptions, med7):
    for plan in two.plans:
        assert plan.certificate.brake_time > 0.0
        assert "torque limits" in plan.certificate.claims
        plan.certificate.matches(plan.trajectory, *assumptions.boxes)
        np.testing.assert_array_equal(plan.certificate.tracking_bound, plan.bound.position)
        np.testing.assert_allclose(plan.trajectory.start, med7.home, atol=1e-12)
        np.testing.assert_allclose(plan.trajectory.end, med7.home, atol=1e-12)


def test_limits_hold_by_brute_force(two, assumptions, med7):
    collision = build_scene_model(med7, assumptions.scene)
    radii = np.array([sphere.radius for sphere in collision.spheres])[collision.movable]
    for plan in two.plans:
        q, v, a = plan.trajectory.sample(np.linspace(0.0, plan.duration, 4001))
        bound, limits = plan.bound, med7.limits
        assert np.all(q - bound.position >= limits.q_lower) and np.all(q + bound.position <= limits.q_upper)
        assert np.all(np.abs(v) + bound.velocity <= limits.v_max) and np.all(np.abs(a) <= limits.a_max)
        centers = sphere_centers(med7, collision.spheres, q[::4])
        assert pair_distances(centers, collision.spheres, collision.pairs).min() > 0.0
        assert (centers[:, collision.movable, 2] - radii).min() > 0.0
        assert np.ptp(q, axis=0).min() > 0.3


def test_the_second_motion_adds_what_the_first_lacks(two):
    first, second = two.excitations
    assert two.condition_number < 0.95 * first.condition_number
    assert two.plans[0].trajectory.hash() != two.plans[1].trajectory.hash()
    assert second.condition_number_windows < first.condition_number_windows
    assert two.duration == pytest.approx(sum(plan.duration for plan in two.plans))


def test_few_iterations_are_already_better_than_a_published_motion(two):
    """EXCITE section V-B: 51 for a Med7 with a tool."""
    assert two.condition_number < 51.0
    assert np.all(two.expected_radii <= two.prior_radii * (1 + 1e-12)) and 0.0 < two.relative_width <= 1.0


def test_a_plan_is_proven_again_from_its_record(two, med7):
    plan = two.plans[0]
    again = type(plan).from_dict(plan.to_dict())
    assert again.plan_id == plan.plan_id
    found = verify(again.assumptions(med7), again.trajectory, plan.bound)
    assert {m.limit for m in plan.certificate.margins} == set(found.margins)


def test_what_is_held_must_be_known(med7):
    heavy = Box(np.zeros(10), np.r_[7.0, np.full(3, 0.5), np.full(6, 0.3)])
    assumptions = Assumptions(med7, (med7.theta_box, heavy), np.zeros(10), Scene(payload_spheres=()))
    with pytest.raises(NoExcitationFound, match="not even with 18 % .* narrower bounds of the load"):
        plan_arm_excitation(assumptions, med7.home, ExcitationSettings.for_arm(8.0, **FAST))


def test_the_search_ends_with_a_motion_that_is_good_enough(assumptions, med7, monkeypatch):
    settings, planned = ExcitationSettings.for_arm(8.0, **{**FAST, "starts": 2}), []

    def plan(*words, **named):
        planned.append((plan_excitation(*words, **named), named["begin_with"]))
        return planned[-1][0]

    monkeypatch.setattr(whole_arm, "plan_excitation", plan)
    enough = replace(settings, wanted_condition_number=120.0)
    found = plan_arm_excitation(assumptions, med7.home, enough)
    assert found.condition_number <= 120.0 and len(planned) == 1 and found.starts == (1,)
    few = planned[0][0].iterations
    # Not enough: all starts are made, with all their iterations, and a second motion is not left out.
    planned.clear()
    found = plan_arm_excitation(assumptions, med7.home, replace(settings, wanted_condition_number=1.0))
    firsts = [plan for plan, begin_with in planned if begin_with is None]
    assert found.starts == (2,) and len(firsts) == 2 and min(plan.iterations for plan in firsts) > few
    planned.clear()
    found = plan_arm_excitation(assumptions, med7.home, enough, motions=2)
    assert found.starts == (1, 1) and planned[1][0].iterations > few, "a later motion is as good as one start makes it"


def test_arms_whose_links_fold_onto_each_other_and_whose_feedback_takes_torque():
    """A search was caught beyond the UR5e's folded elbow, and left no torque at the start of the UR10e."""
    for name in ("ur5e", "ur10e"):
        robot = load_robot(name, known_within=0.2)
        scene, law = (
            Scene(ground_height=0.0, payload_spheres=()),
            RobustSettings(position_gain=14.0, integral_gain=14.0),
        )
        assumptions = Assumptions(robot, (robot.theta_box, EMPTY), np.zeros(10), scene, law)
        settings = ExcitationSettings.for_arm(16.0, parameters="inertial", time_budget=600.0, starts=2)
        settings = replace(settings, max_iterations=150, wanted_condition_number=30.0)
        assert plan_arm_excitation(assumptions, robot.home, settings).condition_number <= 30.0


def test_only_condition_numbers_can_be_enough():
    settings = ExcitationSettings.for_arm(8.0)
    assert settings.enough == 20.0 and ExcitationSettings(wanted_condition_number=20.0).enough == 0.0
    assert replace(settings, criterion="bounds").enough == 0.0


def test_settings_of_a_payload_and_no_motions_are_refused(assumptions, med7):
    with pytest.raises(ParameterOutOfRange, match="target 'payload': expected arm"):
        plan_arm_excitation(assumptions, med7.home, ExcitationSettings())
    with pytest.raises(ParameterOutOfRange, match="motions 0: expected 1 or more"):
        plan_arm_excitation(assumptions, med7.home, motions=0)


def test_it_can_be_cancelled(assumptions, med7):
    with pytest.raises(Cancelled):
        plan_arm_excitation(assumptions, med7.home, is_cancelled=lambda: True)
