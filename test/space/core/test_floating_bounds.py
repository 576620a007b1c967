"""Guaranteed bounds on the momentum equations: error budget, programs, containment, grasped objects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
import scipy.sparse
from scipy.optimize import linprog

from bench._floating_trials import (
    KINDS,
    make_scenario,
    minimal_box,
    minimal_trial,
    object_trial,
    random_motion,
    random_object,
    small_robot,
)
from bench._space import simulate
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange
from sysid_ros.core.estimation.parameters.unknowns import object_within
from sysid_ros.core.model.inertia import is_physically_consistent, transform_parameters
from sysid_ros.space.core.bounds import (
    InconsistentMomentum,
    bound_minimal,
    estimate_object,
    known_minimal,
)
from sysid_ros.space.core.measurements import Assumptions, MomentumRange, Recording, SensorBounds
from sysid_ros.space.core.minimal_parameters import build_minimal_parameters, unit_momenta
from sysid_ros.space.core.momentum import FloatingTree, system_kinematic_matrix
from sysid_ros.space.core.momentum_rows import ERROR_TERMS, Unknowns, build_problem, position_derivatives

EXACT = SensorBounds(0.0, 0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def robot():
    return small_robot(np.random.default_rng(3), 3)


@pytest.fixture(scope="module")
def minimal(robot):
    return build_minimal_parameters(robot.tree)


@pytest.fixture(scope="module")
def values(robot, minimal):
    return minimal.values(robot.tree.parameters)


@pytest.fixture(scope="module")
def truth(robot):
    motion = random_motion(np.random.default_rng(4), robot)
    return simulate(robot, robot.tree.parameters, motion, np.arange(0.05, 6.0, 0.1))


def known(minimal, values, radius=0.0):
    return replace(known_minimal(minimal, Box.around(values, radius * np.abs(values))), target=minimal.count)


def residual(problem, x=0.0):
    """What the rows miss with the target x from the centre and everything else exact, (R,)."""
    return np.abs(problem.y @ (np.zeros(problem.center.size) + x) - problem.r)


def test_derivatives_along_positions_are_those_of_differences(robot):
    rng = np.random.default_rng(0)
    q, v, twist = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 6))
    kinds = {robot.tree.model.joints[k].shortname()[:11] for k in range(2, 5)}
    assert len(kinds) == 2  # revolute and prismatic
    states = robot.tree.evaluate(q, v).with_base_twist(twist)
    units = unit_momenta(robot.tree, q)
    found = position_derivatives(robot.tree, states, units, system_kinematic_matrix(robot.tree, q, v, twist))
    for joint, step in enumerate(1e-6 * np.eye(3)):
        ends = [system_kinematic_matrix(robot.tree, q + sign * step, v, twist) for sign in (1.0, -1.0)]
        np.testing.assert_allclose(found[:, joint], (ends[0] - ends[1]) / 2e-6, atol=1e-8)


def test_true_data_satisfy_the_rows_exactly(robot, minimal, values, truth):
    problem = build_problem(robot, known(minimal, values), [Recording(truth, EXACT)])
    assert np.all(residual(problem) <= problem.error)
    assert problem.error.max() < 1e-9


@pytest.mark.parametrize("radius", [0.0, 0.2])
def test_position_errors_stay_within_their_term(robot, minimal, values, truth, radius):
    """For parameters anywhere in the box; and first-order errors come close to the bound somewhere."""
    rng, worst = np.random.default_rng(5), 0.0
    index = ERROR_TERMS.index("position")
    for size in (1e-4, 0.3):
        unknowns = known(minimal, values, radius)
        for _ in range(5):
            data = replace(truth, q=truth.q + size * rng.choice([-1.0, 1.0], truth.q.shape))
            problem = build_problem(robot, unknowns, [Recording(data, replace(EXACT, joint_position=size))])
            x = problem.radius * rng.choice([-1.0, 1.0], problem.radius.size)
            # With other parameters the true momentum is another: what remains is the effect of the positions alone.
            exact = build_problem(robot, unknowns, [Recording(truth, EXACT)])
            error = np.abs(problem.y @ x - problem.r - (exact.y @ x - exact.r))
            assert np.all(error <= problem.errors[:, index] + 1e-10)
            worst = max(worst, float((error / problem.errors[:, index]).max())) if size < 1e-3 else worst
    assert worst > 0.5


def test_velocity_errors_are_explained_by_their_unknowns(robot, minimal, values, truth):
    rng = np.random.default_rng(6)
    sensors = SensorBounds(1e-3, 2e-3, 3e-3, 0.0)
    sizes = sensors.velocity(robot.n, False)
    errors = rng.choice([-1.0, 1.0], (len(truth), 9))
    scaled = errors * sizes
    data = replace(truth, base_twist=truth.base_twist + scaled[:, :6], v=truth.v + scaled[:, 6:])
    problem = build_problem(robot, known(minimal, values, 0.2), [Recording(data, sensors)])
    x = problem.radius * rng.choice([-1.0, 1.0], problem.radius.size)
    exact = build_problem(robot, known(minimal, values, 0.2), [Recording(truth, EXACT)])
    eta = np.concatenate([np.zeros(9), errors.reshape(-1)])
    explained = problem.y @ x - problem.end_matrix @ eta - problem.r - (exact.y @ x - exact.r)
    assert np.all(np.abs(explained) <= problem.errors[:, 0] + 1e-12)
    # Averaged over blocks they shrink, and stay explained.
    small = replace(sensors, means=np.abs(scaled.reshape(-1, 6, 9).mean(axis=1)).max(axis=0)[[0, 3, 6]] * 2.0)
    blocks = build_problem(robot, known(minimal, values, 0.2), [Recording(data, small, block=6)])
    exact = build_problem(robot, known(minimal, values, 0.2), [Recording(truth, EXACT, block=6)])
    means = scaled.reshape(-1, 6, 9).mean(axis=1) / small.velocity(robot.n, True)
    eta = np.concatenate([np.zeros(9), means.reshape(-1)])
    assert np.abs(means).max() <= 1.0
    explained = blocks.y @ x - blocks.end_matrix @ eta - blocks.r - (exact.y @ x - exact.r)
    assert np.all(np.abs(explained) <= blocks.errors[:, 0] + 1e-12)


def test_bounds_are_those_of_another_solver():
    """Exact optima by HiGHS: never outside our bounds, and ours are no wider than the tolerance says."""
    case = make_scenario(2, "corner")
    found = bound_minimal(case.robot, case.minimal, [case.recording], case.prior, tolerance=1e-6, passes=1)
    unknowns = replace(known_minimal(case.minimal, case.prior), target=case.minimal.count)
    problem = build_problem(case.robot, unknowns, [case.recording])
    blocks = (
        problem.y * problem.radius,
        problem.b * problem.delta_radius,
        problem.end_matrix * problem.end_radii,
        scipy.sparse.diags_array(problem.error),
    )
    matrix = scipy.sparse.hstack([scipy.sparse.csr_array(block) for block in blocks]).tocsr()
    for entry in (0, 3, 8, 15, 20):
        cost = np.zeros(matrix.shape[1])
        cost[entry] = problem.radius[entry]
        ends = []
        for sign in (1.0, -1.0):
            solution = linprog(sign * cost, A_eq=matrix, b_eq=problem.r, bounds=(-1.0, 1.0), method="highs-ds")
            assert solution.status == 0
            ends.append(sign * solution.fun + problem.center[entry])
        width = ends[1] - ends[0]
        assert found.box.lower[entry] <= ends[0] + 1e-7 * width
        assert found.box.upper[entry] >= ends[1] - 1e-7 * width
        assert found.box.width[entry] <= width * (1.0 + 1e-4)


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_truth_is_inside(kind):
    """A few of the trials that bench_free_floating makes by the hundred."""
    for seed in range(100, 102):
        inside, width = minimal_trial(seed, kind)
        assert inside, seed
        assert width < 0.9
        inside, width = object_trial(seed, kind)
        assert inside, seed
        assert width < 0.1


def test_error_budget_adds_up_to_the_radius():
    case = make_scenario(1, "random")
    found = bound_minimal(case.robot, case.minimal, [case.recording], case.prior, passes=1)
    narrowed = (found.box.lower > case.prior.lower) & (found.box.upper < case.prior.upper)
    total = sum(found.error_budget.values())
    assert narrowed.any()
    np.testing.assert_allclose(total[narrowed], 0.5 * found.box.width[narrowed], rtol=1e-6)


def test_recordings_from_before_the_catch_narrow_the_object(robot, minimal, values, truth):
    rng = np.random.default_rng(8)
    held = random_object(rng)
    parameters = robot.tree.parameters.copy()
    parameters[-10:] += held
    sensors = SensorBounds(1e-4, 1e-4, 1e-4, 1e-5)

    def disturbed(data):
        errors = rng.uniform(-1.0, 1.0, (len(data), 9)) * sensors.velocity(robot.n, False)
        return replace(data, base_twist=data.base_twist + errors[:, :6], v=data.v + errors[:, 6:])

    motion = random_motion(rng, robot)
    after = Recording(disturbed(simulate(robot, parameters, motion, np.arange(0.05, 6.0, 0.2))), sensors)
    before = Recording(disturbed(truth.select(slice(0, None, 2))), sensors, holds_object=False)
    rest = known_minimal(minimal, minimal_box(minimal, robot.tree.parameters, 0.1, 0.01))
    body = robot.tree.body_names[-1]
    alone = estimate_object(robot, body, [after], rest, object_within(10.0, 0.5)[0], passes=2)
    both = estimate_object(robot, body, [before, after], rest, object_within(10.0, 0.5)[0], passes=2)
    for found in (alone, both):
        assert found.bounds.box.contains(held)
        assert found.com_box.contains(held[1:4] / held[0])
        assert is_physically_consistent(found.values)
        assert found.bounds.box.contains(found.values)
    assert np.all(both.bounds.box.width <= 1.02 * alone.bounds.box.width)
    assert np.median(both.bounds.box.width / alone.bounds.box.width) < 0.7
    assert both.mass == pytest.approx(held[0], rel=0.05)
    # All inertial parameters of the robot in a box serve as well.
    bodies = Box.around(robot.tree.parameters, 0.02 * np.abs(robot.tree.parameters) + 1e-3)
    rest = Unknowns(np.eye(bodies.center.size), bodies, 0)
    found = estimate_object(robot, body, [after], rest, object_within(10.0, 0.5)[0], passes=1)
    assert found.bounds.box.contains(held)


def test_violated_assumptions_raise_an_alarm(robot, minimal, values, truth):
    prior = Box.around(values, 0.3 * np.abs(values) + 0.02)
    rng = np.random.default_rng(9)
    noisy = replace(truth, base_twist=truth.base_twist + rng.normal(0.0, 1e-2, (len(truth), 6)))
    with pytest.raises(InconsistentMomentum, match="an error bound is too small"):
        bound_minimal(robot, minimal, [Recording(noisy, SensorBounds(1e-4, 1e-4, 1e-4, 0.0))], prior)
    # Momentum nobody knew of, and the same when it is known of.
    start = np.array([0.5, -0.3, 0.2, 0.1, -0.2, 0.3])
    motion = random_motion(np.random.default_rng(4), robot)
    moving = simulate(
        robot, robot.tree.parameters, motion, np.arange(0.05, 6.0, 0.1), lambda t: np.tile(start, (t.size, 1))
    )
    tight = SensorBounds(1e-4, 1e-4, 1e-4, 1e-5)
    with pytest.raises(InconsistentMomentum, match="no parameters are consistent"):
        bound_minimal(robot, minimal, [Recording(moving, tight)], prior)
    aware = MomentumRange(Box(-np.ones(6), np.ones(6)))
    assert bound_minimal(robot, minimal, [Recording(moving, tight, aware)], prior, passes=1).box.contains(values)
    # Velocities in mm/s.
    metres = replace(truth, base_twist=truth.base_twist * np.repeat([1000.0, 1.0], 3))
    with pytest.raises(InconsistentMomentum, match="linear momentum along . in block .* is off by .* kg m/s too much"):
        bound_minimal(robot, minimal, [Recording(metres, tight)], prior)


def test_bad_input(robot, minimal, values, truth):
    recording, rest = Recording(truth, EXACT), known_minimal(minimal, Box.around(values, 0.0 * values))
    with pytest.raises(ParameterOutOfRange, match="'linear' of the sensors -1.0"):
        SensorBounds(-1.0, 0.0, 0.0, 0.0)
    with pytest.raises(ParameterOutOfRange, match="size of the prior"):
        bound_minimal(robot, minimal, [recording], Box(np.zeros(3), np.ones(3)))
    with pytest.raises(ParameterOutOfRange, match="recordings 0"):
        bound_minimal(robot, minimal, [], Box.around(values, np.abs(values)))
    with pytest.raises(ParameterOutOfRange, match="block .* 500"):
        bound_minimal(robot, minimal, [replace(recording, block=500)], Box.around(values, np.abs(values)))
    with pytest.raises(ParameterOutOfRange, match="frame 'hand': expected one of base, joint_1"):
        estimate_object(robot, "hand", [recording], rest)
    with pytest.raises(ParameterOutOfRange, match="that hold the object 0"):
        estimate_object(robot, "joint_3", [replace(recording, holds_object=False)], rest)
    with pytest.raises(ParameterOutOfRange, match="finite box of six entries"):
        MomentumRange(Box(np.zeros(3), np.ones(3)))
    with pytest.raises(ParameterOutOfRange, match="probability"):
        SensorBounds.of_noise(np.ones(3), 0.0, 5, 100, 2.0)
    with pytest.raises(Cancelled):
        bound_minimal(robot, minimal, [recording], Box.around(values, np.abs(values)), is_cancelled=lambda: True)


def test_rows_do_not_depend_on_how_they_are_evaluated(robot, minimal, values):
    """Of 193 samples one is left after the first 192."""
    motion = random_motion(np.random.default_rng(4), robot)
    long = simulate(robot, robot.tree.parameters, motion, np.linspace(0.05, 5.9, 193))
    whole = build_problem(robot, known(minimal, values), [Recording(long, EXACT)])
    part = build_problem(robot, known(minimal, values), [Recording(long.select(slice(100, 193)), EXACT)])
    assert len(whole.r) == 6 * 193
    np.testing.assert_allclose(whole.y[600:], part.y, atol=1e-12)


def test_assumptions_become_error_bounds(robot, truth):
    assumed = Assumptions(averaged=0.5, joint_position_error=1e-4, linear_momentum=2.0, force=0.1, attitude_error=0.01)
    recording = assumed.recording(robot, truth)
    assert recording.block == 5
    assert recording.momentum.initial.contains([2.0, -2.0, 2.0, 0.0, 0.0, 0.0])
    assert recording.momentum.force == 0.1
    assert (recording.sensors.joint_position, recording.sensors.attitude) == (1e-4, 0.01)
    assert recording.sensors.linear > 5.0 * robot.noise[0]
    assert np.asarray(recording.sensors.means)[0] < recording.sensors.linear
    assert recording.sensors.probability == assumed.probability == 1e-6
    assert not assumed.is_momentum_zero
    with pytest.raises(ParameterOutOfRange, match="probability"):
        Assumptions(probability=0.0)


def test_an_object_in_a_frame_of_its_own(robot, minimal, values):
    """The same object in the frame of the joint and in a link's turned frame: each box holds its truth."""
    rng = np.random.default_rng(11)
    place = pin.SE3(pin.exp3(rng.normal(size=3)), rng.normal(size=3) * 0.2)
    model = pin.Model(robot.tree.model)
    model.addFrame(pin.Frame("claw", model.njoints - 1, 0, place, pin.FrameType.BODY))
    gripper = replace(robot, tree=FloatingTree(model))
    held = random_object(rng)
    parameters = robot.tree.parameters.copy()
    parameters[-10:] += held
    sensors = SensorBounds(1e-5, 1e-5, 1e-5, 1e-6)
    data = simulate(robot, parameters, random_motion(rng, robot), np.arange(0.05, 6.0, 0.2))
    rest = known_minimal(minimal, Box.around(values, 1e-3 * np.abs(values)))
    found = estimate_object(gripper, "claw", [Recording(data, sensors)], rest, object_within(10.0, 1.0)[0])
    back = place.inverse()
    truth = transform_parameters(held, back.rotation, back.translation)
    assert found.bounds.box.contains(truth)
    assert found.com_box.contains(truth[1:4] / truth[0])
    np.testing.assert_allclose(found.values, truth, atol=0.05 * held[0])
    assert found.bounds.box.width[0] < 0.1 * held[0]
    again = estimate_object(
        gripper,
        "claw",
        [Recording(data, replace(sensors, probability=1e-6))],
        rest,
        object_within(10.0, 1.0)[0],
        passes=1,
        earlier=replace(found.bounds, probability=2e-6),
    )
    assert again.bounds.box.is_subset_of(found.bounds.box)
    # Error bounds that were given hold for certain; those made of noise with a probability, and these add up.
    assert "probability" not in found.bounds.guarantee
    assert again.bounds.probability == pytest.approx(3e-6)
    assert "white Gaussian noise keeps all of them except with a probability of at most 3e-06" in again.bounds.guarantee


def test_bounds_of_noise_hold_with_their_probability():
    rng = np.random.default_rng(10)
    bounds = SensorBounds.of_noise([1.0, 2.0, 3.0], 0.0, 25, 1000, 0.1)
    failed = 0
    for _ in range(400):
        noise = rng.normal(size=(1000, 1))
        means = noise.reshape(-1, 25).mean(axis=1)
        failed += np.abs(noise).max() > bounds.linear or np.abs(means).max() > np.asarray(bounds.means)[0]
    assert 0.01 < failed / 400 < 0.14
    assert bounds.angular == pytest.approx(2.0 * bounds.linear)
