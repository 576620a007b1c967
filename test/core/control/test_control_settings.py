"""The control law as data, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import GravityPid, RobustSettings
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest, RecedingSettings
from sysid_ros.core.tracking_bound import choose_payload


@pytest.mark.parametrize("settings", [RobustSettings(), RobustSettings(100.0, 6.0, 5.5, 0.25, 1.0, 0.002, 0.0015)])
def test_a_law_can_be_read_back(settings):
    assert RobustSettings.of_law(settings.law) == settings
    assert str(settings.law).startswith(f"robust bandwidth={settings.bandwidth!r} blend_time=")
    assert ControlLaw("robust", settings.law.settings[::-1]) == settings.law  # as from a file with sorted entries


def test_other_laws_have_no_proven_bound(robot):
    law = RobustSettings().law
    missing = replace(law, settings=law.settings[:-1])
    extra = replace(law, settings=(*law.settings, ("feedforward", 1.0)))
    for other in (ControlLaw(""), ControlLaw("robust"), GravityPid(robot).law, missing, extra):
        with pytest.raises(ParameterOutOfRange, match="control law.*no other law has a proven tracking bound"):
            RobustSettings.of_law(other)
    slow = replace(law, settings=tuple((name, 1.0 if name == "period" else value) for name, value in law.settings))
    with pytest.raises(ParameterOutOfRange, match=r"period \[s\]"):
        RobustSettings.of_law(slow)


def test_an_lbr_every_2_ms_needs_a_narrow_prior():
    lbr, control = load_textbook("kuka_lbr_med7"), RobustSettings(bandwidth=100.0, period=0.002, delay=0.002)
    planner = CertifiedPlanner(lbr, RecedingSettings(k_range=0.3, draws=8, starts=1, attempts=3))
    prior = lbr.payload_prior
    wide = Assumptions.of_payload(lbr, control_law=control)
    text = r"no tracking bound: .* every 2 ms: every 1 ms \(an LBR's send_period 0.001\)"
    with pytest.raises(PlanFailure, match=text) as caught:
        planner.plan(PlanRequest(wide, start=lbr.home, time_limit=60.0))
    assert caught.value.code is PlanFailureCode.NO_TRACKING_BOUND
    box = Box.around(0.1 * prior.nominal, 0.03 * prior.box.radius).intersect(prior.box)
    narrow = Assumptions.of_payload(lbr, box, control_law=control)
    plan = planner.plan(PlanRequest(narrow, start=lbr.home, time_limit=60.0))
    assert plan.certificate.control_law == control.law


def test_an_lbr_with_elastic_joints_needs_a_narrow_prior():
    """As a real one has them; which prior that may be is said."""

    def weighed(robot):
        """What weighing leaves of 1.5 kg."""
        prior, lower, upper = robot.payload_prior, *(bound.copy() for bound in vars(robot.payload_prior.box).values())
        lower[0], upper[0] = 1.0, 2.0
        corners = np.outer([1.0, 2.0], [prior.shape.com.lower, prior.shape.com.upper]).reshape(-1, 3)
        lower[1:4], upper[1:4] = corners.min(axis=0), corners.max(axis=0)
        box = Box(lower, upper).intersect(prior.box)
        nominal = choose_payload(robot, (robot.theta_box, box), prior.nominal)
        return replace(Assumptions.of_payload(robot, box), nominal=nominal)

    settings = RecedingSettings(k_range=0.3, draws=8, starts=1, attempts=3)
    wide, narrow = (load_textbook(f"kuka_lbr_med7:elastic{prior}") for prior in ("", ":compact_tool"))
    with pytest.raises(
        PlanFailure, match="If the payload is in a narrower prior, .* name of the model: ':compact_tool'"
    ):
        CertifiedPlanner(wide, settings).plan(PlanRequest(weighed(wide), start=wide.home, time_limit=60.0))
    plan = CertifiedPlanner(narrow, settings).plan(PlanRequest(weighed(narrow), start=narrow.home, time_limit=60.0))
    assert np.abs(plan.trajectory.end - narrow.home).max() > 0.02


def test_plans_are_for_the_law_they_were_asked_for(robot):
    control = RobustSettings(bandwidth=150.0, period=0.0012, delay=0.0012)
    prior = robot.payload_prior
    box = Box.around(prior.nominal, 0.05 * prior.box.width)
    planner = CertifiedPlanner(robot, RecedingSettings(k_range=0.2, draws=8, starts=1))
    assumptions = Assumptions.of_payload(robot, box, control_law=control)
    plan = planner.plan(PlanRequest(assumptions, start=robot.home, time_limit=60.0))
    assert plan.certificate.control_law == control.law != RobustSettings().law
