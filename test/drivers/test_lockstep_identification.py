from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from sysid_ros.core.control import build_controller
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.planning.bezier import BezierTrajectory
from sysid_ros.core.planning.certified_planner import CertifiedPlanner
from sysid_ros.core.planning.scene import Scene
from sysid_ros.drivers.lockstep_identification import LockstepBackend, LockstepSettings
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.mujoco_arm import MujocoArm


class RestingPlanner:
    """All it can prove is to stay: every plan is the same motion."""

    def __init__(self, robot):
        self._planner = CertifiedPlanner(robot)
        self.settings = self._planner.settings

    def plan(self, wanted, scene, now):
        if not wanted.after:
            still = np.zeros(wanted.start.size)
            path = BezierTrajectory(wanted.start, still, still, wanted.start, self.settings.duration)
            self._plan = self._planner.certify(path, wanted.payload, scene, now)
        certificate = self._plan.certificate
        control = replace(certificate.control, after=wanted.after, after_time=wanted.at)
        plan = replace(self._plan, certificate=replace(certificate, control=control))
        return SimpleNamespace(plan=plan, information=np.eye(10), condition_number=1.0)


def test_two_plans_that_are_the_same_motion_are_told_apart(robot):
    """An arm that cannot move at all: the plan from rest and the one that takes over from it have the same hash."""
    loop = ControlLoop(MujocoArm(robot), build_controller("robust", robot), robot)
    backend = LockstepBackend(
        loop, RestingPlanner(robot), StreamingEstimator(robot), Scene(), LockstepSettings(planning_times=(0.1,))
    )
    backend.check_ready()
    first = backend.plan_next(None, np.zeros((10, 10)))
    second = backend.plan_next(first, np.eye(10))
    assert first.motion.trajectory.hash() == second.motion.trajectory.hash()
    assert first.key != second.key and second.key[1] == first.motion.trajectory.hash()
    backend.execute_next(first, None)
    assert loop.mode is LoopMode.TRACK
    backend.wait(0.5)
    backend.execute_next(second, first)
    backend.wait(2.0)
    assert loop.mode is LoopMode.TRACK  # into the second one
    backend.wait(3.0)
    assert loop.mode is LoopMode.HOLD and len(backend.records.executed) == 2 and not backend.records.refusals
