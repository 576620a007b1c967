"""The control law as data, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import GravityPid, RobustSettings
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest, RecedingSettings


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
    lbr, control = load_robot("kuka_lbr_med7"), RobustSettings(bandwidth=100.0, period=0.002, delay=0.002)
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


def test_plans_are_for_the_law_they_were_asked_for(robot):
    control = RobustSettings(bandwidth=150.0, period=0.0012, delay=0.0012)
    prior = robot.payload_prior
    box = Box.around(prior.nominal, 0.05 * prior.box.width)
    planner = CertifiedPlanner(robot, RecedingSettings(k_range=0.2, draws=8, starts=1))
    assumptions = Assumptions.of_payload(robot, box, control_law=control)
    plan = planner.plan(PlanRequest(assumptions, start=robot.home, time_limit=60.0))
    assert plan.certificate.control_law == control.law != RobustSettings().law
