"""Simulated free-flying robots: momentum is conserved, and two independent simulations agree."""

import numpy as np
import pytest

from sysid_ros.core.common.errors import NotPhysicallyConsistent, ParameterOutOfRange, SysidError
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.adapters.driver import FreeFlyerLoop
from sysid_ros.space.core.robot import load_free_flyer
from sysid_ros.space.simulation import (
    ConservationSimulation,
    MujocoSimulation,
    build_mujoco_free_flyer,
    simulate_free_flyer,
)


def motion(robot, intervals, seed=0):
    rng = np.random.default_rng(seed)
    knots = np.cumsum(
        np.concatenate([np.zeros((1, robot.n)), rng.uniform(-0.12, 0.12, (intervals, robot.n))]), axis=0
    ) + robot.home  # fmt: skip
    wheels = np.cumsum(
        np.concatenate([np.zeros((1, robot.wheels.count)), rng.uniform(-90, 90, (intervals, robot.wheels.count))]),
        axis=0,
    )
    return CycloidTrajectory(np.concatenate([knots, wheels], axis=1), 1.0)


def follow(simulation, trajectory, duration):
    """Follow a trajectory; returns states every 0.1 s and the largest momentum in the axes of force and moment."""
    states, drift = [], np.zeros(6)
    for k in range(1, round(duration / simulation.timestep) + 1):
        q, v, a = trajectory.sample(np.array([k * simulation.timestep]))
        simulation.step(q[0], v[0], a[0])
        if k % round(0.1 / simulation.timestep) == 0:
            states.append(simulation.state)
            drift = np.maximum(drift, np.abs(simulation.momentum()))
    return states, drift


def test_mujoco_conserves_momentum_and_agrees_with_conservation(robot):
    trajectory = motion(robot, 5)
    rigid, drift = follow(MujocoSimulation(robot, robot.truth), trajectory, 5.0)
    ideal, none = follow(ConservationSimulation(robot, robot.truth, 0.01), trajectory, 5.0)
    assert none.max() < 1e-10
    # The wheels alone carry up to 9 kg m^2/s; the joints move tens of kilograms at decimetres per second.
    assert drift.max() < 1e-6
    for one, other in zip(rigid, ideal, strict=True):
        np.testing.assert_allclose(one.q[:5], other.q[:5], atol=1e-5)
        np.testing.assert_allclose(one.q[5:], other.q[5:], rtol=2e-4, atol=1e-3)  # the servos lag a little
        np.testing.assert_allclose(one.twist, other.twist, atol=2e-5)
        np.testing.assert_allclose(one.rotation, other.rotation, atol=1e-4)
        np.testing.assert_allclose(one.position, other.position, atol=1e-4)
    assert np.abs(ideal[-1].rotation - np.eye(3)).max() > 0.01


def test_nothing_is_hidden_in_the_model(robot):
    model = build_mujoco_free_flyer(robot, robot.truth, 0.002)
    masses = robot.truth.reshape(-1, 10)[:, 0]
    assert model.body_subtreemass[1] == pytest.approx(masses.sum())
    assert not model.opt.gravity.any()
    assert (model.nq, model.nv) == (7 + 5 + 3, 6 + 5 + 3)


def test_the_simulation_fits_the_robot(robot):
    paper = load_free_flyer("dual_arm")
    assert isinstance(simulate_free_flyer(robot, robot.truth), MujocoSimulation)
    assert isinstance(simulate_free_flyer(paper, paper.truth), ConservationSimulation)
    with pytest.raises(NotPhysicallyConsistent, match="joint_1"):
        MujocoSimulation(paper, paper.truth)
    with pytest.raises(ParameterOutOfRange, match="timestep"):
        MujocoSimulation(robot, robot.truth, 1.0)


def test_a_robot_with_momentum_keeps_it_and_both_simulations_agree(robot):
    trajectory, momentum = motion(robot, 3), np.array([2.0, -3.0, 1.0, 0.5, 0.4, -0.6])
    rigid = MujocoSimulation(robot, robot.truth, momentum=momentum)
    ideal = ConservationSimulation(robot, robot.truth, 0.01, momentum)
    np.testing.assert_allclose(rigid.momentum(), momentum, atol=1e-12)
    one, _ = follow(rigid, trajectory, 3.0)
    other, _ = follow(ideal, trajectory, 3.0)
    np.testing.assert_allclose(rigid.momentum(), momentum, atol=1e-6)
    np.testing.assert_allclose(ideal.momentum(), momentum, atol=1e-9)
    np.testing.assert_allclose(one[-1].position, other[-1].position, atol=2e-4)
    np.testing.assert_allclose(one[-1].rotation, other[-1].rotation, atol=2e-4)
    assert np.abs(one[-1].position).max() > 0.01


@pytest.mark.parametrize("simulation", [MujocoSimulation, ConservationSimulation])
def test_what_is_caught_moves_along_and_belongs_to_the_robot(robot, simulation):
    held = from_com_form(12.0, [0.6, 0.0, 0.0], 0.3 * np.eye(3))
    loop = FreeFlyerLoop(simulation(robot, robot.truth, momentum=[1.0, 0.0, 0.0, 0.0, 0.0, 0.1]))
    loop.advance(0.2)
    before = loop.simulation.state
    loop.hold(held)
    after = loop.simulation.state
    np.testing.assert_array_equal(before.twist, after.twist)
    total = robot.truth.reshape(-1, 10)[:, 0].sum() + 12.0
    assert loop.simulation.momentum()[0] > 1.0  # what was caught came with its own
    assert loop.simulation.parameters.reshape(-1, 10)[:, 0].sum() == pytest.approx(total)
    start = np.concatenate([robot.home, np.zeros(3)])
    loop.admit(CycloidTrajectory(np.array([start, start + 0.1]), 1.0))
    with pytest.raises(SysidError, match="wait for its end"):
        loop.hold(held)
    loop.advance(1.1)
    assert loop.drift.max() < 1e-6
    with pytest.raises(NotPhysicallyConsistent, match="object"):
        loop.hold(-held)
    loop.hold(np.zeros(10))
    assert not loop.held.any()
