"""Creep sweeps: constant speeds there and back, proven; friction and offset that are read from them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.verify import verify
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.excitation.creep_sweep import SPEEDS, certain_speed, creep_speeds, plan_creep_sweep, sweep_motion
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot_files import available_robots

EMPTY = Box(np.zeros(10), np.zeros(10))


def assumptions_of(robot, **scene):
    scene = Scene(**{"ground_height": 0.0, "payload_spheres": (), **scene})
    return Assumptions(robot, (robot.theta_box, EMPTY), np.zeros(10), scene)


def test_speeds_are_nearly_constant_and_the_way_back_mirrors_the_way_there():
    speed = np.array([0.03, -0.1])
    motion = sweep_motion([0.2, 1.0], speed, 8.0)
    times = np.linspace(0.0, 8.0, 801)
    q, v, _ = motion.sample(times)
    plateau = (times > 0.8) & (times < 3.2)
    np.testing.assert_allclose(v[plateau], np.broadcast_to(speed, (plateau.sum(), 2)), rtol=0.03)
    np.testing.assert_allclose(q, q[::-1], atol=1e-9)
    np.testing.assert_allclose(q[[0, -1]], [[0.2, 1.0]] * 2, atol=1e-12)
    assert np.all(np.sign(speed) * v[1:400] > -1e-3) and np.ptp(q[:, 1]) > 0.3
    assert np.abs(v[:3]).max() < 1e-3, "it starts from rest"


@pytest.mark.parametrize("name", available_robots())
@pytest.mark.parametrize("period", [1e-3, 5e-3])
def test_the_direction_is_certain_at_every_speed(name, period):
    robot, settings = load_robot(name), EstimatorSettings()
    speeds = creep_speeds(robot, period)
    assert speeds.shape == (SPEEDS, robot.n) and np.all(speeds[0] > 1.2 * certain_speed(robot, settings, period))
    assert np.all(speeds[1:] >= 1.39 * speeds[:-1]) and np.all(speeds < robot.limits.v_max)
    slower = creep_speeds(robot, period, dataclasses.replace(settings, stiction_speed=0.001))
    assert np.all(slower[0] < speeds[0])


def test_a_sweep_can_be_cancelled_and_needs_time():
    assumptions = assumptions_of(load_textbook("kuka_lbr_med7"))
    with pytest.raises(Cancelled):
        plan_creep_sweep(assumptions, assumptions.robot.home, is_cancelled=lambda: True)
    with pytest.raises(ParameterOutOfRange, match=r"duration of a sweep \[s\] 0.0: expected above 0"):
        plan_creep_sweep(assumptions, assumptions.robot.home, 0.0)


@pytest.mark.slow
def test_every_motion_is_proven_with_its_own_tracking_bound():
    robot = load_textbook("kuka_lbr_med7")
    assumptions, told = assumptions_of(robot), []
    sweep = plan_creep_sweep(assumptions, robot.home, 6.0, on_progress=lambda share, text: told.append(text))
    assert len(sweep.plans) == SPEEDS and sweep.duration == pytest.approx(18.0) and told[0] == "sweep 1 of 3"
    for plan, speed in zip(sweep.plans, sweep.speeds, strict=True):
        plan.certificate.matches(plan.trajectory, *assumptions.boxes)
        np.testing.assert_array_equal(plan.certificate.tracking_bound, plan.bound.position)
        found = verify(assumptions, plan.trajectory, plan.bound)
        assert {m.limit for m in plan.certificate.margins} == set(found.margins)
        fastest = np.max(np.abs(plan.trajectory.velocity_extrema()), axis=0)
        np.testing.assert_allclose(fastest, speed, rtol=0.05)


@pytest.mark.slow
def test_a_path_that_is_refused_goes_another_way_or_not_at_all():
    robot = load_textbook("kuka_lbr_med7")
    start = robot.home.copy()
    start[1] = robot.limits.q_upper[1] - 0.08  # little room on one side
    outwards = plan_creep_sweep(assumptions_of(robot, ground_height=None), start, 6.0)
    for plan in outwards.plans:
        assert np.all(plan.trajectory.position_extrema()[1] < robot.limits.q_upper)
        np.testing.assert_allclose(plan.trajectory.end, start, atol=1e-12)
    hand = robot.pin_model.createData()
    pin.forwardKinematics(robot.pin_model, hand, robot.home)
    box = Obstacle("wall", hand.oMi[robot.n].translation, np.full(3, 0.02))
    with pytest.raises(SysidError, match="no creep sweep of up to 0.0389 rad/s could be .*wall"):
        plan_creep_sweep(assumptions_of(robot, obstacles=(box,)), robot.home, 6.0)
