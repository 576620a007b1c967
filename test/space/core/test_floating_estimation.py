"""Simulation by conservation of momentum, measurements with the paper's noise, and point estimates from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from bench._space import (
    add_noise,
    data_from_euler_rates,
    euler_angles,
    euler_rate_matrices,
    euler_rotations,
    predict_torques,
    simulate,
    validation_motion,
)
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.core.excitation import largest_range
from sysid_ros.space.core.intervals import FloatingMotion
from sysid_ros.space.core.measurements import data_from_rates
from sysid_ros.space.core.method import Method
from sysid_ros.space.core.minimal_parameters import (
    build_minimal_parameters,
    estimate_minimal,
    momentum_columns,
    unit_momenta,
)
from sysid_ros.space.core.momentum import system_kinematic_matrix
from sysid_ros.space.core.robot import load_free_flyer


@pytest.fixture(scope="module")
def robot():
    return load_free_flyer("dual_arm")


@pytest.fixture(scope="module")
def minimal(robot):
    return build_minimal_parameters(robot.tree)


def travelling_motion(robot, intervals, seed=0):
    """Each joint turns as far as it may in every interval, and back at times; wheels go either way."""
    rng = np.random.default_rng(seed)
    reach = largest_range(robot, 1.0)
    knots = [rng.uniform(0.5 * robot.q_lower, 0.5 * robot.q_upper)]
    directions = rng.choice([-1.0, 1.0], robot.n)
    for _ in range(intervals):
        directions = np.where(rng.random(robot.n) < 0.2, -directions, directions)
        knots.append(knots[-1] + directions * reach * rng.uniform(0.7, 1.0, robot.n))
    turns = 3.0 * np.pi * rng.choice([-1.0, 1.0], (intervals, robot.wheels.count))
    return FloatingMotion(CycloidTrajectory(np.array(knots), 1.0), turns)


@pytest.fixture(scope="module")
def motion(robot):
    return travelling_motion(robot, 67)


@pytest.fixture(scope="module")
def truth(robot, motion):
    return simulate(robot, robot.truth, motion, np.arange(67 * 20 + 1) / 20.0)


def relative_errors(values, expected):
    return np.abs((values - expected) / expected)


def momentum_of(robot, data):
    own = system_kinematic_matrix(robot.tree, data.q, data.v, data.base_twist) @ robot.truth
    return own + robot.wheels.momentum(data.wheel_rates)


def test_momentum_stays_what_it_is_in_inertial_axes(robot, motion):
    """With and without momentum at the start; that of the moving base is turned by its pose."""
    times = np.arange(0.0, 20.0, 0.05)
    still = simulate(robot, robot.truth, motion, times)
    assert np.abs(momentum_of(robot, still)).max() < 1e-10
    start = np.array([20.0, -30.0, 10.0, 5.0, 40.0, -20.0])
    moving = simulate(robot, robot.truth, motion, times, lambda t: np.tile(start, (t.size, 1)))
    in_base = momentum_of(robot, moving)
    back = np.einsum("nij,j->ni", momentum_columns(moving.rotations, moving.positions), start)
    assert np.abs(in_base - back).max() < 1e-9
    assert np.abs(moving.positions[-1]).max() > 0.1
    # Its pose belongs to its twist: finite differences of one give the other.
    fine = simulate(robot, robot.truth, motion, np.arange(0.0, 2.0, 0.005), lambda t: np.tile(start, (t.size, 1)))
    spans, back = (fine.times[2:] - fine.times[:-2])[:, None], np.swapaxes(fine.rotations[1:-1], 1, 2)
    linear = np.einsum("nij,nj->ni", back, (fine.positions[2:] - fine.positions[:-2]) / spans)
    turned = back @ (fine.rotations[2:] - fine.rotations[:-2])
    found = np.concatenate([linear, turned[:, [2, 0, 1], [1, 2, 0]] / spans], axis=1)
    assert np.abs(found - fine.base_twist[1:-1]).max() < 2e-4 * np.abs(fine.base_twist).max()


def test_pose_is_integrated_to_fourth_order(robot, motion):
    """Half the step, a sixteenth of the error."""
    runs = [simulate(robot, robot.truth, motion, np.arange(5 * count + 1) / count) for count in (10, 20, 80)]
    errors = [np.abs(run.rotations[:: len(run) // 50] - runs[2].rotations[::8]).max() for run in runs[:2]]
    assert 10.0 < errors[0] / errors[1] < 25.0
    assert errors[1] < 1e-7
    np.testing.assert_allclose(runs[0].rotations[-1] @ runs[0].rotations[-1].T, np.eye(3), atol=1e-12)


def test_euler_angles_are_z_x_y(robot):
    rng = np.random.default_rng(1)
    angles = rng.uniform(-1.2, 1.2, (50, 3))
    turns = euler_rotations(angles)
    for (z, x, y), turn in zip(angles, turns, strict=True):
        expected = pin.utils.rotate("z", z) @ pin.utils.rotate("x", x) @ pin.utils.rotate("y", y)
        np.testing.assert_allclose(turn, expected, atol=1e-14)
    np.testing.assert_allclose(euler_angles(turns), angles, atol=1e-12)
    rates = rng.normal(size=(50, 3))
    step = 1e-6
    change = (euler_rotations(angles + step * rates) - euler_rotations(angles - step * rates)) / (2.0 * step)
    body = np.swapaxes(turns, 1, 2) @ change
    found = np.einsum("nij,nj->ni", euler_rate_matrices(angles, np.zeros(50)), rates)
    np.testing.assert_allclose(found, np.stack([body[:, 2, 1], body[:, 0, 2], body[:, 1, 0]], 1), atol=1e-8)


def test_measurements_without_noise_are_the_motion(robot, truth):
    exact = replace(robot, noise=np.zeros(3))
    data = add_noise(exact, truth, np.random.default_rng(0), "trapezoid")
    # The trapezoid rule errs by h^2 / 12 times the change of the slope, over each half of a cycloid.
    share = 0.05**2 / 12.0
    assert np.abs(data.q - truth.q).max() < 1.01 * robot.a_max.max() * share
    assert np.abs(data.base_twist - truth.base_twist).max() < 1e-6
    slope = np.linalg.norm(np.diff(truth.base_twist[:, 3:], axis=0) / 0.05, axis=1).max()
    assert np.abs(data.rotations - truth.rotations).max() < 2.0 * slope * share
    # Forward Euler is one step late, as the paper has it.
    late = add_noise(exact, truth, np.random.default_rng(0))
    assert 1e-4 < np.abs(late.q - truth.q).max() < 5e-3


def test_unit_momenta_are_the_columns_of_the_regressor(robot, truth):
    some = truth.select(slice(0, 200, 20))
    units = unit_momenta(robot.tree, some.q)
    matrix = np.einsum("nk,nkic->nic", some.velocities, units)
    expected = system_kinematic_matrix(robot.tree, some.q, some.v, some.base_twist)
    assert np.abs(matrix - expected).max() < 1e-12


@pytest.mark.parametrize("method", list(Method))
def test_without_noise_every_method_finds_the_truth(robot, minimal, truth, method):
    estimate = estimate_minimal(robot, minimal, truth, method)
    assert relative_errors(estimate.values, minimal.values(robot.truth)).max() < 1e-8


@pytest.mark.slow
def test_unknown_momentum_is_estimated_too(robot, minimal, motion):
    start = np.array([2.0, -3.0, 1.0, 0.5, 4.0, -2.0])
    data = simulate(robot, robot.truth, motion, np.arange(0.0, 67.0, 0.1), lambda t: np.tile(start, (t.size, 1)))
    expected = minimal.values(robot.truth)
    estimate = estimate_minimal(robot, minimal, data, Method.TOTAL, is_momentum_zero=False)
    assert relative_errors(estimate.values, expected).max() < 1e-5
    np.testing.assert_allclose(estimate.momentum, start, atol=1e-5)
    wrong = estimate_minimal(robot, minimal, data, Method.TOTAL)
    assert np.median(relative_errors(wrong.values, expected)) > 0.1


@pytest.mark.slow
def test_total_least_squares_remove_the_bias(robot, minimal, truth):
    """Medians over noise; and the errors are those its standard deviations say."""
    expected = minimal.values(robot.truth)
    medians, sizes = {method: [] for method in Method}, []
    for seed in range(6):
        data = add_noise(robot, truth, np.random.default_rng(seed), "trapezoid")
        for method in Method:
            estimate = estimate_minimal(robot, minimal, data, method)
            medians[method].append(np.median(relative_errors(estimate.values, expected)))
            if method is Method.TOTAL:
                sizes.append((estimate.values - expected) / estimate.deviations)
    found = {method: float(np.mean(values)) for method, values in medians.items()}
    assert found[Method.TOTAL] < 0.5 * found[Method.WEIGHTED]
    assert found[Method.WEIGHTED] < found[Method.LEAST_SQUARES]
    assert 0.7 < np.sqrt(np.mean(np.square(sizes))) < 1.6


def test_prediction_with_minimal_parameters_is_that_with_all(robot, minimal):
    times = np.arange(0.0, 40.0, 2.0)
    q, v, a = validation_motion(robot, np.random.default_rng(0), times)
    assert np.all((np.abs(v).max(axis=0) <= robot.v_max) & np.all(np.abs(q) <= robot.q_upper, axis=0))
    twist, torques = predict_torques(robot, robot.truth, q, v, a)
    reduced = predict_torques(robot, minimal.embed(minimal.values(robot.truth)), q, v, a)
    np.testing.assert_allclose(reduced[0], twist, atol=1e-12)
    np.testing.assert_allclose(reduced[1], torques, atol=1e-9)
    # Power: with no momentum, the joints' work is all that changes the kinetic energy.
    q, v, a = validation_motion(robot, np.random.default_rng(0), 5.0 + np.array([-1e-4, 0.0, 1e-4]))
    twist, torques = predict_torques(robot, robot.truth, q, v, a)
    full = pin.Model(robot.tree.model)
    for body, part in enumerate(robot.truth.reshape(-1, 10)):
        full.inertias[body + 1] = pin.Inertia.FromDynamicParameters(part)
    energy = []
    for k in range(3):
        position, velocity = np.concatenate([[0, 0, 0, 0, 0, 0, 1.0], q[k]]), np.concatenate([twist[k], v[k]])
        energy.append(pin.computeKineticEnergy(full, full.createData(), position, velocity))
    assert (energy[2] - energy[0]) / 2e-4 == pytest.approx(float(torques[1] @ v[1]), rel=1e-5)


def test_too_little_motion_is_said(robot, minimal, truth):
    with pytest.raises(ParameterOutOfRange, match="rank of the data .*: expected 52; move more joints"):
        estimate_minimal(robot, minimal, truth.select(slice(0, 8)))


def test_bad_input(robot, truth):
    times, zeros = truth.times[:5], np.zeros((5, 6))
    with pytest.raises(ParameterOutOfRange, match=r"missing base_twist.*: .* the momentum equation needs it"):
        data_from_rates(robot, times, None, zeros)
    with pytest.raises(ParameterOutOfRange, match=r"shape of v .* \(5, 5\): expected \(5, 6\)"):
        data_from_rates(robot, times, zeros, zeros[:, :5])
    with pytest.raises(ParameterOutOfRange, match="joint_2.*are these deg/s"):
        data_from_rates(robot, times, zeros, zeros + np.eye(6)[1] * 4.0)
    with pytest.raises(ParameterOutOfRange, match="wheel_y.*the wheel saturates"):
        data_from_rates(robot, times, zeros, zeros, np.eye(3)[1] * 30.0 * np.ones((5, 1)))
    with pytest.raises(ParameterOutOfRange, match="joint_3 by its positions.*units or joints mixed up"):
        data_from_rates(robot, times, zeros, zeros, q=np.linspace(0.0, 1.0, 5)[:, None] * np.eye(6)[2])
    with pytest.raises(ParameterOutOfRange, match="base_twist 'not finite'"):
        data_from_rates(robot, times, np.full((5, 6), np.nan), zeros, start=np.zeros(6))
    with pytest.raises(ParameterOutOfRange, match="ascending order"):
        data_from_rates(robot, times[::-1], zeros, zeros)
    fast = np.zeros((5, 3))
    fast[:, 1] = 0.5 * np.pi / (times[1] - times[0])
    with pytest.raises(SysidError, match=r"singular at 0.050 s: the angle about x is 90.00 deg"):
        data_from_euler_rates(robot, times, fast, fast, zeros)
