"""The control law in words, and back."""

from __future__ import annotations

import pytest

from sysid_ros.core.control import GravityPid, RobustSettings
from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.planning.certified_planner import CertifiedPlanner, NextPlan, PayloadKnowledge
from sysid_ros.core.planning.receding.settings import RecedingSettings
from sysid_ros.core.planning.scene import Scene


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


def test_plans_are_for_the_law_they_were_asked_for(robot):
    control = RobustSettings(bandwidth=150.0, period=0.0012, delay=0.0012)
    prior = robot.payload_prior
    payload = PayloadKnowledge.of(robot, prior.box.__class__.around(prior.nominal, 0.05 * prior.box.width))
    planner = CertifiedPlanner(robot, RecedingSettings(k_range=0.2, draws=8, starts=1), control=control)
    part = planner.plan(NextPlan(payload, start=robot.home, time_limit=60.0), Scene())
    assert part.plan.certificate.control.law == control.law != RobustSettings().law
