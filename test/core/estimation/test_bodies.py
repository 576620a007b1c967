"""Any body, and all bodies at once: the truth is inside, and the bounds are those of the linear programs."""

import dataclasses

import numpy as np
import pinocchio as pin
import pytest
import scipy.sparse
from scipy.optimize import linprog
from textbook import load_steady

from sysid_ros.core.estimation.bounds.set_membership import bound_by_membership
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.bounds import hull
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns, find_body
from sysid_ros.core.estimation.streaming import StreamingEstimator, estimate_from_samples
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters, sample_payload

CAMERA = from_com_form(0.8, [0.05, -0.1, 0.03], np.array([[2e-3, 1e-4, 0], [1e-4, 1e-3, 0], [0, 0, 2e-3]]))
ON_LINK = EstimatorSettings(body="joint_4", body_mass=2.0, body_reach=0.25, update_windows=6)
ALL = EstimatorSettings(body="all", update_windows=6, bound_tolerance=1e-2)


def true_target(robot, settings, theta, added):
    """True values of the target: what is added to a body, that body with it, or all of them."""
    if settings.body == "all":
        return theta[: 14 * robot.n if settings.friction_range else 10 * robot.n]
    part = robot.inertial_slice(find_body(robot, settings.body))
    return added if settings.target == "payload" else theta[part]


def simulate(robot, tools, settings, rng, seconds, added=None, in_hand=None, adversarial=False, noisy=True):
    """True target and samples of an arm at a corner of its box, with an object on a body and another in the hand."""
    theta = sample_parameters(robot, rng, corner=True)
    if settings.friction_range:
        friction = np.s_[10 * robot.n :]
        theta[friction] *= rng.uniform(0.1, settings.friction_range, theta[friction].size) / 1.2
    if added is not None:
        theta[robot.inertial_slice(find_body(robot, settings.body))] += added
    if in_hand is not None:
        theta[robot.inertial_slice(robot.n)] += in_hand
    motion = tools.FourierMotion(robot, int(rng.integers(100)))
    block = tools.record(robot, theta, np.zeros(10), motion, seconds)
    if noisy:
        block = tools.measure(robot, block.q, block.v, block.tau, rng, adversarial=adversarial)
    return true_target(robot, settings, theta, added), block


def collect(robot, settings, block):
    parts = []
    estimator = StreamingEstimator(robot, dataclasses.replace(settings, update_windows=1000), on_rows=parts.append)
    estimator.add(block)
    unknowns = describe_unknowns(robot, settings)
    box, shared = unknowns.prior, unknowns.end_error
    objectives = unknowns.target.objectives
    return Problem.build(Rows.stack(parts), box.center, box.radius, unknowns.radius, shared, objectives), unknowns


def linear_program(problem, cost, sign):
    """Bound of ``cost theta`` by scipy, all variables in units of their half widths."""
    matrix = scipy.sparse.hstack([problem.y, problem.b, problem.end_matrix])
    radii = np.concatenate([problem.radius, problem.delta_radius, problem.end_radii])
    scaled = scipy.sparse.diags_array(1.0 / problem.error) @ matrix @ scipy.sparse.diags_array(radii)
    limits = np.concatenate([problem.r / problem.error + 1.0, 1.0 - problem.r / problem.error])
    full = np.zeros(radii.size)
    full[: problem.radius.size] = sign * cost * problem.radius
    both = scipy.sparse.vstack([scaled, -scaled]).tocsr()
    outcome = linprog(full, A_ub=both, b_ub=limits, bounds=(-1.0, 1.0), method="highs-ipm")
    assert outcome.status == 0, outcome.message
    return cost @ problem.center + sign * outcome.fun


class TestAnyBody:
    @pytest.mark.parametrize("target", ["payload", "end_effector"])
    @pytest.mark.parametrize("body", ["joint_2", "forearm_link", "joint_7"])
    @pytest.mark.parametrize("adversarial", [False, True])
    def test_the_truth_is_inside(self, robot, tools, target, body, adversarial):
        settings = dataclasses.replace(ON_LINK, body=body, target=target)
        rng = np.random.default_rng(len(body) + adversarial)
        truth, block = simulate(robot, tools, settings, rng, 1.3, CAMERA, adversarial=adversarial)
        estimate, history, _ = estimate_from_samples(robot, [block], settings)
        assert len(history) == 4
        for item in [*history, estimate]:
            assert item.is_consistent and item.contains(truth), (item.alarm, truth - item.lower, item.upper - truth)
            assert item.combinations is None or item.combinations.contains(truth)
        prior = describe_unknowns(robot, settings).prior.radius
        assert estimate.radius.min() < 0.98 * prior[np.argmin(estimate.radius / prior)]
        assert is_physically_consistent(estimate.values) and estimate.contains(estimate.values)
        assert estimate.frame == f"joint_{find_body(robot, body)}" and "payload" not in estimate.target

    def test_a_payload_in_the_hand_is_allowed_for(self, robot, tools, dumbbell):
        """Bounds hold with it when it may be there; without that they lose the truth or give the alarm."""
        outcomes = []
        for in_hand in (True, False):
            settings = dataclasses.replace(ON_LINK, payload_in_hand=in_hand)
            rng = np.random.default_rng(0)
            truth, block = simulate(robot, tools, settings, rng, 1.3, CAMERA, dumbbell)
            outcomes.append(estimate_from_samples(robot, [block], settings)[0].contains(truth))
        assert outcomes == [True, False]

    def test_no_object_and_one_outside_the_prior(self, robot, tools):
        truth, block = simulate(robot, tools, ON_LINK, np.random.default_rng(3), 1.3, np.zeros(10))
        assert estimate_from_samples(robot, [block], ON_LINK)[0].contains(truth)
        truth, block = simulate(robot, tools, ON_LINK, np.random.default_rng(3), 1.3, 10.0 * CAMERA)
        estimate, _, _ = estimate_from_samples(robot, [block], ON_LINK)
        assert not estimate.is_consistent and "no parameters are consistent with all the data" in estimate.alarm.text

    def test_what_joint_torques_cannot_tell_stays_the_prior(self, robot, tools):
        settings = dataclasses.replace(ON_LINK, body="joint_1", use_cone=False)
        truth, block = simulate(robot, tools, settings, np.random.default_rng(5), 1.9, CAMERA)
        estimate, _, _ = estimate_from_samples(robot, [block], settings)
        assert estimate.contains(truth) and estimate.combinations.contains(truth)
        assert estimate.combinations.names == ("joint_1.Izz",)  # the first joint turns about the vertical
        unidentifiable = [0, 3, 4, 5, 6, 7, 8]  # mcx and mcy follow from the Izz of a body
        prior = describe_unknowns(robot, settings).prior
        np.testing.assert_allclose(estimate.radius[unidentifiable], prior.radius[unidentifiable], rtol=1e-6)

    def test_combinations_are_bounded_better_than_their_parameters_allow(self, robot, tools):
        settings = dataclasses.replace(ON_LINK, body="joint_2")
        truth, block = simulate(robot, tools, settings, np.random.default_rng(6), 1.9, CAMERA)
        estimate, _, _ = estimate_from_samples(robot, [block], settings)
        found = estimate.combinations
        assert found.contains(truth) and "joint_2.Ixx − joint_2.Iyy" in found.formulas
        from_box = hull(found.matrix, estimate.box)
        index = found.formulas.index("joint_2.Ixx − joint_2.Iyy")
        assert found.radius[index] <= from_box.radius[index] * (1 + 1e-9)
        assert np.all(found.lower <= found.values) and np.all(found.values <= found.upper)
        single = np.count_nonzero(found.matrix, axis=1) == 1
        entries = np.argmax(found.matrix[single], axis=1)
        np.testing.assert_array_equal(found.lower[single], estimate.lower[entries])

    def test_bounds_are_those_of_the_linear_program(self, robot, tools):
        settings = dataclasses.replace(ON_LINK, body="joint_2")
        truth, block = simulate(robot, tools, settings, np.random.default_rng(7), 0.85, CAMERA)
        problem, unknowns = collect(robot, settings, block)
        bounds = bound_by_membership(problem, 1e-6)
        values = problem.objectives @ truth
        assert np.all((bounds.lower <= values) & (values <= bounds.upper))
        assert len(problem.objectives) > 10
        for k in (0, 3, len(problem.objectives) - 1):
            lower, upper = (linear_program(problem, problem.objectives[k], sign) for sign in (1.0, -1.0))
            np.testing.assert_allclose([bounds.lower[k], bounds.upper[k]], [lower, upper], atol=2e-6 * (upper - lower))
            assert bounds.lower[k] <= lower + 1e-8 * (upper - lower)


class TestAllBodies:
    @pytest.mark.parametrize(
        ("friction_range", "adversarial", "in_hand"), [(0.0, False, False), (0.0, True, True), (2.0, True, False)]
    )
    def test_the_truth_is_inside(self, robot, tools, friction_range, adversarial, in_hand):
        settings = dataclasses.replace(ALL, friction_range=friction_range, payload_in_hand=in_hand)
        rng = np.random.default_rng(int(friction_range) + 2 * adversarial)
        held = sample_payload(robot.payload_prior, rng) if in_hand else None
        truth, block = simulate(robot, tools, settings, rng, 1.3, None, held, adversarial)
        estimate, history, _ = estimate_from_samples(robot, [block], settings)
        for item in [*history, estimate]:
            assert item.is_consistent, item.alarm
            assert item.contains(truth) and item.combinations.contains(truth)
        found = estimate.combinations
        assert len(found) == (69 if friction_range else 43)
        assert np.all(found.radius <= found.prior.radius * (1 + 1e-12))
        assert np.sum(found.radius < 0.9 * found.prior.radius) >= (15 if friction_range else 8)
        assert estimate.frame == "" and estimate.names[13] == "joint_2.mcz" and "smallest box" in estimate.guarantee
        shares = sum(found.error_budget.values())
        assert shares.shape == (len(found),) and np.all(shares >= found.radius * (1 - 1e-6))

    @pytest.mark.parametrize("friction_range", [0.0, 2.0])
    def test_torque_behind_the_gear(self, tools, friction_range):
        """Armature is never in it; friction behind the sensor is where it is asked for, up to as much as is said."""
        robot = load_steady("kuka_lbr_med7")
        settings = dataclasses.replace(ALL, friction_range=friction_range)
        theta, rng = sample_parameters(robot, np.random.default_rng(1), corner=True), np.random.default_rng(2)
        largest = robot.friction(robot.theta_box.upper)
        behind = friction_range * largest * rng.uniform(0.0, 1.0, (7, 4)) * [1.0, 1.0, 0.0, 0.0]
        behind[:, 3] = theta[70:].reshape(7, 4)[:, 3]
        theta[70:] = behind.ravel()
        seen = tools.with_sensors(robot, effort_meaning=EffortMeaning.MOTOR_SIDE)  # which shows all that is in theta
        block = tools.record(seen, theta, np.zeros(10), tools.FourierMotion(robot, 1), 1.3)
        truth = theta[: 14 * 7 if friction_range else 70]
        estimate, _, _ = estimate_from_samples(robot, [block], settings)
        found = estimate.combinations
        assert estimate.contains(truth) and found.contains(truth)
        for name in ("beta", "F_c", "F_v"):
            assert sum(name in one for one in found.names) == (7 if friction_range else 0)
        assert not any("I_a" in name for name in found.names)
        if friction_range:
            coulomb = np.array(["F_c" in name for name in found.names])
            assert np.sum(found.radius[coulomb] < 0.9 * found.prior.radius[coulomb]) >= 3

    def test_bounds_are_those_of_the_linear_program(self, robot, tools):
        settings = dataclasses.replace(ALL, friction_range=1.5)
        truth, block = simulate(robot, tools, settings, np.random.default_rng(7), 0.65)
        problem, unknowns = collect(robot, settings, block)
        bounds = bound_by_membership(problem, 1e-6)
        names = unknowns.target.combinations.names
        for name in ("joint_4.mcy", "joint_6.Izz", "joint_3.F_c", "joint_2.beta"):
            k = names.index(name)
            lower, upper = (linear_program(problem, problem.objectives[k], sign) for sign in (1.0, -1.0))
            np.testing.assert_allclose([bounds.lower[k], bounds.upper[k]], [lower, upper], atol=2e-6 * (upper - lower))

    def test_velocity_errors_at_the_ends_are_covered_for_every_arm_in_the_box(self, robot, tools):
        """The gain of a velocity error at an end of a window is the inertia matrix, here that of all bodies."""
        settings = dataclasses.replace(ALL, friction_range=2.0)
        _, block = simulate(robot, tools, settings, np.random.default_rng(2), 0.25, noisy=False)
        parts = []
        StreamingEstimator(robot, settings, on_rows=parts.append).add(block)
        rows, rng, nearest = parts[0], np.random.default_rng(0), 0.0
        assert rows.ends.shape[-1] == 2  # no column for the target
        box = describe_unknowns(robot, settings).prior
        for trial in range(40):
            draw = rng.choice([-1.0, 1.0], 98) if trial else np.zeros(98)
            theta = box.center + box.radius * draw
            model = tools.true_model(robot, theta, np.zeros(10))
            for end, index in ((0, 0), (1, np.searchsorted(block.stamps, rows.stop[0]))):
                inertia = pin.crba(model, model.createData(), block.q[index])
                inertia = np.triu(inertia) + np.triu(inertia, 1).T + np.diag(theta[72::4])
                gains = rows.ends[:, end, :7]
                offset = np.abs(inertia - gains[..., 0])
                assert np.all(offset <= gains[..., 1] * (1 + 1e-9) + 1e-12)
                nearest = max(nearest, float((offset / gains[..., 1]).max()))
        assert nearest > 0.5

    def test_many_windows_are_compacted_and_keep_the_truth(self, robot, tools):
        settings = dataclasses.replace(ALL, max_windows=20, window_duration=0.05, update_windows=10)
        truth, block = simulate(robot, tools, settings, np.random.default_rng(9), 2.1)
        sizes = []
        estimator = StreamingEstimator(robot, settings, on_update=lambda _: sizes.append(len(estimator.stored_windows)))
        estimator.add(block)
        estimate = estimator.estimate()
        assert estimate.contains(truth) and estimate.combinations.contains(truth)
        assert len(sizes) == 4 and max(sizes) <= 21
        assert estimator.information().shape == (70, 70) and 1.0 < estimate.condition_number < 1e8

    def test_an_arm_outside_its_box_is_noticed_or_loses_the_truth(self, robot, tools):
        """Not vacuous: the bounds rest on the box of the arm."""
        theta = robot.theta_nominal.copy()
        theta[:70] *= 1.3
        block = tools.record(robot, theta, np.zeros(10), tools.FourierMotion(robot, 2), 1.3)
        estimate, _, _ = estimate_from_samples(robot, [block], ALL)
        assert not estimate.is_consistent or not estimate.combinations.contains(theta[:70])

    def test_the_smallest_box_by_brute_force(self, robot):
        """Random points of the prior that agree with a few rows fill the bounds of combinations and stay inside."""
        rng = np.random.default_rng(0)
        count, size = 4, 3
        matrix = rng.normal(size=(count, size))
        objectives = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -2.0]])
        zeros = np.zeros((count, 2, robot.n, 2))
        stamps = np.zeros(count, dtype=np.int64)
        truth, error = rng.uniform(-0.5, 0.5, size), 0.3
        rows = Rows(
            y=matrix, b=np.zeros((count, 1)), u=matrix @ truth, ends=zeros,
            errors=np.full((count, len(ERROR_TERMS)), error / len(ERROR_TERMS)),
            tilt=np.zeros((count, 0, 0)), window=stamps - 1, joint=stamps - 1, start=stamps, stop=stamps,
        )  # fmt: skip
        problem = Problem.build(rows, np.zeros(size), np.ones(size), np.zeros(1), np.zeros(robot.n), objectives)
        bounds = bound_by_membership(problem, 1e-6)
        points = rng.uniform(-1.0, 1.0, (2_000_000, size))
        points = points[np.all(np.abs((points - truth) @ matrix.T) <= error, axis=1)]
        assert len(points) > 1000
        values = points @ objectives.T
        assert np.all((bounds.lower <= values) & (values <= bounds.upper))
        width = bounds.upper - bounds.lower
        assert np.all(values.min(axis=0) - bounds.lower < 0.1 * width)
        assert np.all(bounds.upper - values.max(axis=0) < 0.1 * width)
