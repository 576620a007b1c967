"""The process in which the driver proves plans: it proves, remembers, ends with its parent, and comes back."""

import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from textbook import load_textbook, textbook_file

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.verify import Beginning, certify
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.child import ChildProcessFailed
from sysid_ros.drivers.loop_types import LoopModel, LoopRefusal, RefusalCode
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.proof import OwnAssumptions, ProofProcess

pytestmark = pytest.mark.realtime


@pytest.fixture(scope="module")
def plans():
    """A plan from rest and one that takes over from it, each as the process is asked to prove it."""
    robot = load_textbook()
    prior, held, rest = robot.payload_prior.box, load_payload(robot, "dumbbell_4lb"), np.zeros(robot.n)
    lower, upper = (np.clip(held + sign * 0.02 * prior.radius, prior.lower, prior.upper) for sign in (-1.0, 1.0))
    model = LoopModel.of_payload(robot, Box(lower, upper), held)
    assumptions = Assumptions(robot, (model.theta_box, model.payload_box), model.payload, Scene())
    own = OwnAssumptions(assumptions.boxes, model.payload, Scene(), assumptions.control_law.law)
    path = BezierTrajectory(robot.home, rest, rest, robot.home + 0.1, 3.0)
    bound = assumptions.bound(path)
    first = certify(assumptions, path, bound, beginning=Beginning(rest_before=bound.settling_time))
    next_path = BezierTrajectory(*path.evaluate(1.5), robot.home, 3.0)
    following = assumptions.bound(next_path, bound.until(1.5))
    second = certify(assumptions, next_path, following, beginning=Beginning(first.plan_id, 1.5))
    return (path, first, own), (next_path, second, own)


def test_plans_are_proven_in_order_once_and_again_after_a_crash(plans):
    first, second = plans
    process = ProofProcess(textbook_file())
    process.start()
    try:
        with pytest.raises(LoopRefusal, match="was not proven here") as refused:
            process.prove(*second)
        assert refused.value.code is RefusalCode.NOT_PROVEN
        seconds = process.prove(*first)
        assert 0.0 < seconds < 60.0 and process.prove(*second) > 0.0
        assert process.prove(*first) == seconds  # remembered
        forged = replace(first[1], torque_bound=0.5 * first[1].torque_bound)
        with pytest.raises(LoopRefusal, match="feedback torque"):
            process.prove(first[0], forged, first[2])
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises((LoopRefusal, ChildProcessFailed)):  # what it knew of the motion is gone
            time.sleep(0.5)
            process.prove(*second)
        assert process.prove(*first) > 0.0
    finally:
        process.stop()
    assert not process.is_alive


def test_a_robot_that_cannot_be_loaded_is_told_with_the_first_plan(plans):
    process = ProofProcess("no_such_robot")
    try:
        with pytest.raises(ChildProcessFailed, match="could not load the robot: .*no_such_robot"):
            process.prove(*plans[0])
    finally:
        process.stop()
