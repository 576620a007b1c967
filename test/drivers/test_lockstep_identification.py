from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.control import build_controller
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.planning.certified_planner import CertifiedPlanner
from sysid_ros.core.trajectories.bezier import BezierTrajectory
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.mujoco.arm import MujocoArm
from sysid_ros.emulation.lockstep_identification import LockstepBackend, LockstepSettings


class RestingPlanner:
    """All it can prove is to stay: every plan is the same motion."""

    def __init__(self, robot):
        self._planner = CertifiedPlanner(robot)
        self.settings = self._planner.settings

    def plan(self, wanted, scene, now):
        if not wanted.after:
            still = np.zeros(wanted.start.size)
            self._path = BezierTrajectory(wanted.start, still, still, wanted.start, self.settings.duration)
        plan = self._planner.certify(self._path, wanted.payload, scene, now)
        control = replace(plan.certificate.control, after=wanted.after, after_time=wanted.at)
        plan = replace(plan, certificate=replace(plan.certificate, control=control))
        return SimpleNamespace(plan=plan, information=np.eye(10), condition_number=1.0)


def test_plans_that_are_the_same_motion_are_told_apart(robot):
    """An arm that cannot move at all: the plan from rest and those that follow have the same hash."""
    loop = ControlLoop(MujocoArm(robot), build_controller("robust", robot), robot)
    backend = LockstepBackend(
        loop, RestingPlanner(robot), StreamingEstimator(robot), Scene(), LockstepSettings(planning_times=(0.1,))
    )
    backend.check_ready()
    first = backend.plan_next(None, np.zeros((10, 10)))
    second = backend.plan_next(first, np.eye(10))
    assert first.motion.trajectory.hash() == second.motion.trajectory.hash()
    backend.execute_next(first, None)
    assert loop.mode is LoopMode.TRACK
    assert backend.time_until_takeover(second) == np.inf and backend.share_to_come(second) == 1.0  # not started
    begin = 1e-9 * loop.now_ns
    backend.wait(0.5)
    backend.execute_next(second, first)
    assert backend.time_until_takeover(first) == pytest.approx(1.0, abs=2e-3)
    assert backend.time_until_takeover(second) == pytest.approx(2.5, abs=2e-3)
    assert backend.is_followed(first) and not backend.is_followed(second)
    backend.wait(0.4)
    published = 1e-9 * backend.records.estimates[-1][0]
    assert begin < published <= begin + 0.9 and 1e-9 * loop.now_ns - published < 0.53
    assert backend.share_to_come(first) == pytest.approx(1.0 - (published - begin) / 1.5, abs=2e-3)
    assert backend.share_to_come(second) == 1.0
    backend.wait(1.6)
    published = 1e-9 * backend.records.estimates[-1][0]
    assert backend.share_to_come(first) == 0.0
    assert backend.share_to_come(second) == pytest.approx(1.0 - (published - begin - 1.5) / 1.5, abs=2e-3)
    assert loop.mode is LoopMode.TRACK and backend.is_followed(second)
    third = backend.plan_next(second, np.eye(10))
    backend.execute_next(third, second)
    assert backend.time_until_takeover(third) - backend.time_until_takeover(second) == pytest.approx(1.5)
    backend.wait(0.3)
    assert not backend.is_followed(third)
    backend.wait(1.0)
    assert backend.is_followed(third)
    backend.wait(3.0)
    assert loop.mode is LoopMode.HOLD and len(backend.records.executed) == 3 and not backend.records.refusals
