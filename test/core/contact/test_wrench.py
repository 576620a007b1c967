"""Wrenches at the tool: bounds against HiGHS, containment of random wrenches, contact elsewhere, singular postures."""

import numpy as np
import pinocchio as pin
import pytest
from scipy.optimize import linprog

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.contact.external_torque import ExternalTorque
from sysid_ros.core.contact.wrench import ContactSettings, WrenchObserver, bound_wrench, smallest_detectable

LARGEST = np.array([300.0, 300, 300, 100, 100, 100])


def random_case(rng, n=7):
    matrix = rng.normal(size=(n, 6)) * [1, 1, 1, 0.5, 0.5, 0.5]
    wrench = rng.normal(size=6) * [30, 30, 30, 5, 5, 5]
    radius = rng.uniform(0.1, 2.0, n)
    center = matrix @ wrench + radius * rng.uniform(-1, 1, n)
    return matrix, wrench, center - radius, center + radius


@pytest.mark.parametrize("n", [5, 6, 7])
def test_bounds_are_those_of_the_primal_program(n):
    """With six joints or more while the largest wrench does not matter, with five where it does."""
    rng = np.random.default_rng(n)
    largest = LARGEST if n < 6 else 30.0 * LARGEST
    for _ in range(10):
        matrix, wrench, lower, upper = random_case(rng, n)
        found = bound_wrench(matrix, lower, upper, largest)
        assert not found.is_elsewhere
        assert np.all(found.lower <= wrench) and np.all(wrench <= found.upper)
        for i in range(6):
            for sign, end in ((1.0, found.lower), (-1.0, found.upper)):
                solved = linprog(
                    sign * np.eye(6)[i],
                    A_ub=np.concatenate([matrix, -matrix]),
                    b_ub=np.concatenate([upper, -lower]),
                    bounds=list(zip(-largest, largest, strict=True)),
                )
                assert sign * end[i] <= solved.fun + 1e-9
                assert sign * end[i] == pytest.approx(solved.fun, rel=1e-6, abs=1e-5)


def test_near_a_singular_posture_the_largest_wrench_counts():
    rng = np.random.default_rng(4)
    matrix, wrench, lower, upper = random_case(rng)
    matrix[:, 5] = matrix[:, :5] @ rng.normal(size=5) + 1e-6 * rng.normal(size=7)
    center = matrix @ wrench
    found = bound_wrench(matrix, center - 0.1, center + 0.1, LARGEST)
    assert np.all(found.lower <= wrench) and np.all(wrench <= found.upper)
    for i in range(6):
        solved = linprog(
            np.eye(6)[i],
            A_ub=np.concatenate([matrix, -matrix]),
            b_ub=np.concatenate([center + 0.1, 0.1 - center]),
            bounds=list(zip(-LARGEST, LARGEST, strict=True)),
        )
        assert found.lower[i] == pytest.approx(solved.fun, rel=1e-6, abs=1e-6)


def test_torques_that_no_wrench_at_the_tool_makes_show_contact_elsewhere():
    rng = np.random.default_rng(0)
    matrix, _, lower, upper = random_case(rng)
    normal = np.linalg.svd(matrix.T)[2][-1]  # no wrench reaches this direction
    shift = 50.0 * normal
    found = bound_wrench(matrix, lower + shift, upper + shift, LARGEST)
    assert found.is_elsewhere and np.all(np.isnan(found.lower))


def test_what_no_joint_feels_stays_at_the_largest_wrench():
    matrix = np.diag([1.0, 1, 1, 1, 1, 0])
    found = bound_wrench(matrix, -np.ones(6), np.ones(6), LARGEST)
    assert np.allclose(found.upper[:5], 1.0) and found.upper[5] == LARGEST[5] and found.lower[5] == -LARGEST[5]


def window(robot, rng, wrench, radius, seconds=0.1, samples=51):
    """External torques of a wrench while the arm turns, with intervals that hold their mean."""
    t = np.linspace(0.0, seconds, samples)
    velocity = rng.uniform(-0.5, 0.5, robot.n)
    q = np.array(robot.home) + rng.uniform(-0.3, 0.3, robot.n) + np.outer(t, velocity)
    data, frame = robot.pin_model.createData(), robot.pin_model.getFrameId(robot.tool_frame)
    reference = pin.ReferenceFrame.LOCAL
    torques = np.array([pin.computeFrameJacobian(robot.pin_model, data, row, frame, reference).T @ wrench for row in q])
    mean = np.trapezoid(torques, t, axis=0) / seconds
    center = mean + radius * rng.uniform(-1, 1, robot.n)
    error = 0.5 * robot.sensors.position_resolution * rng.uniform(-1, 1, q.shape)
    return ExternalTorque(0, round(seconds * 1e9), center - radius, center + radius, q + error)


def test_wrenches_at_the_tool_of_a_moving_arm_are_inside(robot):
    rng = np.random.default_rng(1)
    observer = WrenchObserver(robot)
    for _ in range(10):
        wrench = rng.normal(size=6) * [30, 30, 30, 5, 5, 5]
        found = observer.observe(window(robot, rng, wrench, rng.uniform(0.05, 1.0, robot.n)))
        assert not found.is_elsewhere
        assert np.all(found.lower <= wrench) and np.all(wrench <= found.upper)
        assert np.all(np.abs(found.value[:3]) < 300.0)


def test_a_narrower_assumption_on_the_change_gives_narrower_bounds(robot):
    case = window(robot, np.random.default_rng(3), np.array([20.0, 0, 0, 0, 0, 0]), np.full(robot.n, 0.1))
    steady = WrenchObserver(robot, ContactSettings(force_change=0.0, moment_change=0.0)).observe(case)
    changing = WrenchObserver(robot, ContactSettings(force_change=50.0, moment_change=5.0)).observe(case)
    assert np.all(steady.upper - steady.lower < changing.upper - changing.lower)


def test_a_wrench_of_the_stated_size_excludes_zero_for_any_errors(robot):
    rng = np.random.default_rng(2)
    observer = WrenchObserver(robot)
    for _ in range(20):
        q = np.array(robot.home) + rng.uniform(-0.5, 0.5, robot.n)
        direction = rng.normal(size=6) * [1, 1, 1, 0.1, 0.1, 0.1]
        direction /= np.linalg.norm(direction[:3])
        width = rng.uniform(0.1, 3.0, robot.n)
        jacobian = observer.jacobian(q)
        (size,) = smallest_detectable(jacobian, width, direction)
        truth = 1.0001 * size * jacobian.T @ direction
        for position in (0.0, 0.3, 1.0):  # where in its interval the truth lies
            lower = truth - position * width
            found = ExternalTorque(0, 10**8, lower, lower + width, np.stack([q, q]))
            assert found.is_proven.any()
        truth = 0.999 * size * jacobian.T @ direction
        unlucky = np.where(truth > 0.0, truth - width, truth)
        found = ExternalTorque(0, 10**8, unlucky, unlucky + width, np.stack([q, q]))
        assert not found.is_proven.any()


def test_a_direction_of_length_zero_is_refused():
    with pytest.raises(ParameterOutOfRange, match="directions"):
        smallest_detectable(np.eye(6), np.ones(6), np.zeros((1, 6)))
