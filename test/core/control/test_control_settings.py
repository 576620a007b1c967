"""The control law in words, and back."""

from __future__ import annotations

import pytest

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import GravityPid, RobustSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.planning.certified_planner import CertifiedPlanner, NextPlan, NoPlan, PayloadKnowledge
from sysid_ros.core.planning.settings import RecedingSettings


@pytest.mark.parametrize("settings", [RobustSettings(), RobustSettings(100.0, 6.0, 5.5, 0.25, 1.0, 0.002, 0.0015)])
def test_a_law_can_be_read_back(settings):
    assert RobustSettings.from_law(settings.law) == settings


def test_other_laws_have_no_proven_bound(robot):
    missing = RobustSettings().law.replace(" delay=0.001", "")
    extra = RobustSettings().law + " feedforward=1.0"
    wrong = RobustSettings().law.replace("period=0.001", "period=fast")
    for law in ("", "robust", GravityPid(robot).law, missing, extra, wrong):
        with pytest.raises(ParameterOutOfRange, match="control law.*no other law has a proven tracking bound"):
            RobustSettings.from_law(law)
    with pytest.raises(ParameterOutOfRange, match=r"period \[s\]"):
        RobustSettings.from_law(RobustSettings().law.replace("period=0.001", "period=1.0"))


def test_an_lbr_every_2_ms_needs_a_narrow_prior():
    lbr, control = load_robot("kuka_lbr_med7"), RobustSettings(bandwidth=100.0, period=0.002, delay=0.002)
    planner = CertifiedPlanner(lbr, RecedingSettings(k_range=0.3, draws=8, starts=1, attempts=3), control=control)
    prior = lbr.payload_prior
    with pytest.raises(NoPlan, match=r"no tracking bound: .* every 2 ms: every 1 ms \(an LBR's send_period 0.001\)"):
        planner.plan(NextPlan(PayloadKnowledge.of(lbr), start=lbr.home, time_limit=60.0), Scene())
    narrow = Box.around(0.1 * prior.nominal, 0.03 * prior.box.radius).intersect(prior.box)
    part = planner.plan(NextPlan(PayloadKnowledge.of(lbr, narrow), start=lbr.home, time_limit=60.0), Scene())
    assert "period=0.002" in part.plan.certificate.control.law


def test_plans_are_for_the_law_they_were_asked_for(robot):
    control = RobustSettings(bandwidth=150.0, period=0.0012, delay=0.0012)
    prior = robot.payload_prior
    payload = PayloadKnowledge.of(robot, Box.around(prior.nominal, 0.05 * prior.box.width))
    planner = CertifiedPlanner(robot, RecedingSettings(k_range=0.2, draws=8, starts=1), control=control)
    part = planner.plan(NextPlan(payload, start=robot.home, time_limit=60.0), Scene())
    assert part.plan.certificate.control.law == control.law != RobustSettings().law
