"""Tests of an arm that a simulated hand guides: it follows, stands still without a hand, and a wrong model drifts."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import RobustController
from sysid_ros.core.control.guiding import Wall
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopModel, LoopRefusal, LoopSettings
from sysid_ros.drivers.mujoco.arm import MujocoArm
from sysid_ros.emulators.lockstep import run_for
from sysid_ros.papers.guided_arm import Hand, LockstepGuiding

PAYLOAD = from_com_form(1.0, [0.0, 0.0, 0.08], np.diag([0.004, 0.004, 0.002]))


@pytest.fixture(scope="module", params=["kinova_gen3", "kuka_lbr_med7"])
def robot(request):
    return load_textbook(request.param)


def build(robot, payload=PAYLOAD, allows_guiding=True):
    """Build the loop of an arm with nominal parameters and a tool of 1 kg, whose model has another payload (10,)."""
    arm = MujocoArm(robot, payload=PAYLOAD)
    model = replace(LoopModel.nominal(robot), payload=payload)
    loop = ControlLoop(arm, RobustController(robot), robot, LoopSettings(allows_guiding=allows_guiding), model)
    loop.connect()
    run_for(loop, 0.5)
    return loop, LockstepGuiding(loop, arm)


@pytest.mark.slow
def test_the_arm_goes_where_the_hand_wants_it_and_stops_when_told(robot):
    loop, run = build(robot)
    hand = Hand()
    start, _ = run.tool()
    wanted = pin.SE3(start.rotation, start.translation + np.array([0.0, 0.12, 0.05]))
    loop.guide()
    forces = []
    for _ in range(4000):
        cycle = run.step(lambda tool, twist: hand.wrench(wanted, np.zeros(3), tool, twist))
        assert cycle.sample.mode is LoopMode.GUIDE and not cycle.sample.ok
        forces.append(cycle.hand)
    place, twist = run.tool()
    # What is left is held by the dead zone.
    assert np.linalg.norm(place.translation - wanted.translation) < 0.02
    assert np.linalg.norm(twist[:3]) < 0.02
    assert np.linalg.norm(np.array(forces)[-200:, :3].mean(axis=0)) < 6.0
    with pytest.raises(LoopRefusal, match="model"):
        loop.set_model(loop.model)
    loop.brake("enough")
    for _ in range(1000):
        run.step()
    assert loop.mode is LoopMode.HOLD
    before = run.tool()[0].translation
    cycle = None
    for _ in range(200):
        cycle = run.step(lambda tool, twist: np.array([15.0, 0, 0, 0, 0, 0]))
    assert cycle.sample.ok
    assert np.linalg.norm(run.tool()[0].translation - before) < 2e-3


@pytest.mark.slow
def test_without_a_hand_the_true_model_stands_still_and_a_missing_tool_drifts(robot):
    drifts = {}
    for name, payload in (("true", PAYLOAD), ("no tool", np.zeros(10))):
        loop, run = build(robot, payload)
        start, _ = run.tool()
        loop.guide()
        for _ in range(1500):
            run.step()
        drifts[name] = np.linalg.norm(run.tool()[0].translation - start.translation)
    assert drifts["true"] < 2e-3
    assert drifts["no tool"] > 0.03


def test_the_end_of_heartbeats_ends_it(robot):
    loop, run = build(robot)
    loop.guide()
    run.step()
    for _ in range(1500):
        loop.step()
    assert (loop.mode, loop.status().code) == (LoopMode.HOLD, LoopCode.STALE)


def test_guiding_has_to_be_allowed_and_the_arm_at_rest(robot):
    loop, _ = build(robot, allows_guiding=False)
    with pytest.raises(LoopRefusal, match="allows_guiding"):
        loop.guide()
    loop, run = build(robot)
    place = run.tool()[0].translation
    with pytest.raises(ParameterOutOfRange, match="glass"):
        loop.guide(walls=[Wall("glass", [1.0, 0.0, 0.0], float(place[0]) - 0.01, np.zeros(3))])
    assert loop.mode is LoopMode.HOLD
    loop.guide()
    with pytest.raises(LoopRefusal, match="GUIDE"):
        loop.guide()


def test_a_guide_that_fails_ends_in_a_fault_and_not_the_loop(robot, monkeypatch):
    loop, run = build(robot)
    loop.guide()
    run.step()

    def fail(*_):
        raise RuntimeError("no solution")

    monkeypatch.setattr("sysid_ros.core.control.guiding.closest_point", fail)
    run.step()
    assert (loop.mode, loop.status().code) == (LoopMode.FAULT, LoopCode.INTERNAL)
    assert "no solution" in loop.status().reason


def test_a_push_that_is_not_finite_is_refused(robot):
    arm = MujocoArm(robot)
    with pytest.raises(ParameterOutOfRange, match="external torque"):
        arm.push(np.full(robot.n, np.nan))
