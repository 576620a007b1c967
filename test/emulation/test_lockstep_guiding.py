"""Tests of an arm that a simulated hand guides: it follows, stands still without a hand, and a wrong model drifts."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.contact.momentum_observer import MomentumObserver
from sysid_ros.core.control import RobustController
from sysid_ros.core.control.guiding import GuidingLaw, GuidingSettings
from sysid_ros.core.control.model import add_payload
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.mujoco.arm import MujocoArm
from sysid_ros.emulation.lockstep_guiding import Hand, LockstepGuiding

PAYLOAD = from_com_form(1.0, [0.0, 0.0, 0.08], np.diag([0.004, 0.004, 0.002]))


@pytest.fixture(scope="module", params=["kinova_gen3", "kuka_lbr_med7"])
def robot(request):
    return load_robot(request.param)


def build(robot, model):
    """Build the run of an arm with the nominal parameters and a tool of 1 kg, guided with another model (14 n,)."""
    arm = MujocoArm(robot, payload=PAYLOAD)
    arm.connect()
    controller = RobustController(robot)
    controller.set_model(robot.theta_nominal, robot.theta_box, PAYLOAD, robot.payload_prior.box)
    observer = MomentumObserver(robot, model, arm.period, gain=30.0)
    return LockstepGuiding(robot, arm, GuidingLaw(robot, GuidingSettings()), controller, observer)


def test_the_arm_goes_where_the_hand_wants_it(robot):
    run, hand = build(robot, add_payload(robot.theta_nominal, PAYLOAD)), Hand()
    start, _ = run.tool()
    wanted = pin.SE3(start.rotation, start.translation + np.array([0.0, 0.12, 0.05]))
    forces = []
    for _ in range(4000):
        cycle = run.step(lambda tool, twist: hand.wrench(wanted, np.zeros(3), tool, twist))
        forces.append(cycle.hand)
    place, twist = run.tool()
    # What is left is held by the dead zone.
    assert np.linalg.norm(place.translation - wanted.translation) < 0.02
    assert np.linalg.norm(twist[:3]) < 0.02
    assert np.linalg.norm(np.array(forces)[-200:, :3].mean(axis=0)) < 6.0


def test_without_a_hand_the_true_model_stands_still_and_a_missing_tool_drifts(robot):
    drifts = {}
    for name, model in (("true", add_payload(robot.theta_nominal, PAYLOAD)), ("no tool", robot.theta_nominal)):
        run = build(robot, model)
        start, _ = run.tool()
        for _ in range(2000):
            run.step()
        drifts[name] = np.linalg.norm(run.tool()[0].translation - start.translation)
    assert drifts["true"] < 2e-3
    assert drifts["no tool"] > 0.05


def test_a_push_that_is_not_finite_is_refused(robot):
    arm = MujocoArm(robot)
    with pytest.raises(ParameterOutOfRange, match="external torque"):
        arm.push(np.full(robot.n, np.nan))
