"""The heaviest object of a motion: the verifier accepts it, and refuses what is a little heavier."""

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.cli import main as door
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.payload import object_box
from sysid_ros.core.planning.heaviest import find_heaviest
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanRequest


@pytest.mark.slow
def test_the_heaviest_object_can_be_held_and_a_heavier_one_cannot():
    robot, scene = load_robot(), Scene(ground_height=0.0)
    goal = robot.home + np.array([0.4, 0.3, 0.2, -0.2, 0.2, 0.2, 0.2])
    mass, plan, reason = find_heaviest(robot, robot.home, goal, scene)
    assert plan is not None and 0.5 < mass < 4.0 and "limit" in reason
    payload = object_box((mass, mass), robot.payload_prior.shape.com, 0.0).center
    torque = ArmDynamics(robot, robot.theta_nominal, payload, armature=True).gravity(goal)
    assert np.all(np.abs(torque) < robot.limits.tau_continuous)
    box = object_box((0.0, 1.3 * mass), robot.payload_prior.shape.com, robot.payload_prior.shape.gyration)
    arm = replace(robot, payload_prior=replace(robot.payload_prior, box=box, nominal=box.center))
    with pytest.raises(PlanRejected):
        CertifiedPlanner(arm).plan_to(PlanRequest(Assumptions.of_payload(arm, scene=scene), robot.home, goal=goal))


def test_bad_postures_and_priors_are_named(capsys):
    assert door.main(["how-heavy", "--goal", "0.1", "0.2"]) == ExitStatus.BAD_INPUT
    assert "--goal" in capsys.readouterr().err
    robot = load_robot("kinova_gen3_2f85:safe_id_table_1")
    with pytest.raises(ParameterOutOfRange, match="prior"):
        find_heaviest(robot, robot.home, robot.home, Scene())
