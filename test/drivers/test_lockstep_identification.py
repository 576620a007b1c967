from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.control import build_controller
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.procedure import ModelRefused, MotionRequest, PayloadModel
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.mujoco.arm import MujocoArm
from sysid_ros.emulators.lockstep import LockstepBackend, LockstepSettings


class RestingPlanner:
    """All it can prove is to stay: every plan is the same motion."""

    def __init__(self, robot):
        self._planner = CertifiedPlanner(robot)
        self.settings = self._planner.settings

    def plan(self, wanted, now):
        if wanted.predecessor is None:
            still = np.zeros(wanted.start.size)
            self._path = BezierTrajectory(wanted.start, still, still, wanted.start, self.settings.duration)
        plan = self._planner.certify(self._path, wanted.assumptions, now)
        certificate = plan.certificate
        if wanted.predecessor is not None:
            begin = {"predecessor": wanted.predecessor.plan_id, "takeover_time": wanted.takeover_time}
            certificate = replace(certificate, rest_before=0.0, **begin)
        gained = {"handover_time": self.settings.planning_time, "information_gained": np.eye(10) - wanted.information}
        return replace(plan, certificate=certificate, condition_number=1.0, **gained)


@pytest.mark.slow
def test_plans_that_are_the_same_motion_are_told_apart(robot):
    """An arm that cannot move at all: the plan from rest and those that follow have the same path."""
    loop = ControlLoop(MujocoArm(robot), build_controller("robust", robot), robot)
    backend = LockstepBackend(
        loop, RestingPlanner(robot), StreamingEstimator(robot), Scene(), LockstepSettings(planning_times=(0.1,))
    )
    backend.wait_until_ready()
    model, nothing = backend.make_policy().in_use, np.zeros((10, 10))

    def share_to_come(plan):
        return 1.0 - 1e-9 * (backend.stamp_ns() - backend.begin_ns(plan)) / plan.handover_time

    def time_left(plan):
        return plan.handover_time - 1e-9 * (backend.now_ns() - backend.begin_ns(plan))

    first = backend.plan(MotionRequest(model, nothing, start=backend.posture()))
    second = backend.plan(MotionRequest(model, np.eye(10), predecessor=first))
    assert first.trajectory.hash() == second.trajectory.hash() and first.plan_id != second.plan_id
    np.testing.assert_array_equal(first.information_gained, np.eye(10))
    backend.execute(first)
    assert loop.mode is LoopMode.TRACK
    assert backend.begin_ns(second) is None and not backend.has_begun(second)  # not started
    begin = 1e-9 * loop.now_ns
    backend.wait(0.5)
    backend.execute(second)
    assert time_left(first) == pytest.approx(1.0, abs=2e-3)
    assert time_left(second) == pytest.approx(2.5, abs=2e-3)
    assert backend.has_begun(first) and not backend.has_begun(second)
    backend.wait(0.4)
    published = 1e-9 * backend.records.estimates[-1][0]
    assert begin < published <= begin + 0.9 and 1e-9 * loop.now_ns - published < 0.53
    assert share_to_come(first) == pytest.approx(1.0 - (published - begin) / 1.5, abs=2e-3)
    assert share_to_come(second) > 1.0
    backend.wait(1.6)
    published = 1e-9 * backend.records.estimates[-1][0]
    assert share_to_come(first) < 0.0
    assert share_to_come(second) == pytest.approx(1.0 - (published - begin - 1.5) / 1.5, abs=2e-3)
    assert loop.mode is LoopMode.TRACK and backend.has_begun(second)
    third = backend.plan(MotionRequest(model, np.eye(10), predecessor=second))
    backend.execute(third)
    assert time_left(third) - time_left(second) == pytest.approx(1.5)
    backend.wait(0.3)
    assert not backend.has_begun(third)
    backend.wait(1.0)
    assert backend.has_begun(third)
    backend.wait(3.0)
    assert loop.mode is LoopMode.HOLD and len(backend.records.executed) == 3 and not backend.records.refusals


def test_a_model_that_the_loop_refuses_is_noted(robot):
    loop = ControlLoop(MujocoArm(robot), build_controller("robust", robot), robot)
    backend = LockstepBackend(loop, CertifiedPlanner(robot), StreamingEstimator(robot))
    backend.wait_until_ready()
    model, box = backend.make_policy().in_use, robot.payload_prior.box
    wide = Box(box.lower, box.upper + 1.0)
    with pytest.raises(ModelRefused, match="not inside the one in use"):
        backend.set_model(PayloadModel(wide, model.nominal))
    assert len(backend.records.refusals) == 1 and not backend.records.models
    assert loop.model.payload_box is model.box
    backend.set_model(PayloadModel(wide, model.nominal), is_reset=True)
    assert loop.model.payload_box is wide and len(backend.records.models) == 1
