"""The proven bound against an independent simulation of the sampled loop: random arms, payloads and sensor errors."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import ControlModel, RobustController, RobustSettings
from sysid_ros.core.excitation.problem import FourierSpace
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import PayloadPrior
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.tracking_bound import (
    BoundNotAvailable,
    choose_payload,
)
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.model_terms import ModelTerms, TermStates, compute_model_terms
from sysid_ros.core.tracking_bound.nominal_payload import weighed_payload
from sysid_ros.core.tracking_bound.tube import SAMPLING, SETTLED, TubeMap
from sysid_ros.core.tracking_bound.uncertainty import inertia_ratios
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory, rest_projection

HOLD = 1.3  # s; longer than any settling time here


def known(robot, share=0.15):
    """A model whose payload is known to about this share, as after an identification."""
    payload = robot.payload_prior.nominal
    radius = share * np.array([1.25, 0.08, 0.08, 0.28, 0.07, 0.02, 0.07, 0.02, 0.02, 0.02])
    return ControlModel(robot.theta_nominal, robot.theta_box, payload, Box.around(payload, radius))


def reach(robot, duration):
    """A motion of all joints from rest to rest."""
    goal = robot.home + np.array([0.8, 0.5, -0.6, 0.7, 0.8, -0.5, 0.9])
    return BezierTrajectory(robot.home, np.zeros(robot.n), np.zeros(robot.n), goal, duration)


def draw_payload(model, rng):
    """A consistent payload at or near a corner of the box."""
    return sample_payload(PayloadPrior(model.payload_box, model.payload), rng, corner=True)


def drive(robot, tools, model, settings, truth, motion, balance=None, **conditions):
    controller = RobustController(robot, settings)
    controller.set_model(model.theta, model.theta_box, model.payload, model.payload_box)
    controller.reset(balance)
    run = tools.run(robot, controller, truth, motion.evaluate, motion.duration + 0.2, HOLD, **conditions)
    assert controller.saturated_cycles == 0
    return run


def extra_torque(robot, settings, truth, motion, run):
    """Commanded torque less what the true model needs for the desired motion."""
    total = add_payload(*truth)
    dynamics = ArmDynamics(robot, total, armature=True)
    coulomb, viscous, _, offset = total[10 * robot.n :].reshape(robot.n, 4).T
    rows = []
    for time, tau in zip(run.time, run.torque, strict=True):
        q, v, a = motion.evaluate(time)
        needed = dynamics.passive_torque(q, v, v, a) + coulomb * settings.friction_share(v) + viscous * v + offset
        rows.append(tau - needed)
    return np.array(rows)


@pytest.fixture(scope="module")
def fast(robot, tools):
    """A fast motion with a payload that is roughly known."""
    model, motion, settings = known(robot), tools.fourier(robot, 3), RobustSettings()
    return model, motion, settings, tracking_bound(robot, model, motion, settings)


@pytest.mark.parametrize(
    ("noise", "delay", "seed"),
    [
        ("uniform", 1, 1),
        pytest.param("pushing", 1, 2, marks=pytest.mark.slow),
        pytest.param("undamping", 1, 3, marks=pytest.mark.slow),
        pytest.param("uniform", 0, 4, marks=pytest.mark.slow),
    ],
)
def test_fast_motion_stays_inside(robot, tools, fast, noise, delay, seed):
    model, motion, settings, bound = fast
    assert np.all(np.degrees(bound.position) < 0.4)
    assert bound.settling_time < HOLD
    rng = np.random.default_rng(seed)
    truth = sample_parameters(robot, rng, corner=True), draw_payload(model, rng)
    run = drive(robot, tools, model, settings, truth, motion, noise=noise, delay=delay, seed=seed).after(0.0)
    position, velocity = np.abs(run.position).max(axis=0), np.abs(run.velocity).max(axis=0)
    assert np.all(position <= bound.position)
    assert np.all(velocity <= bound.velocity)
    torques = np.abs(extra_torque(robot, settings, truth, motion, run))
    assert np.all(torques <= bound.torque_over(run.time, np.zeros_like(run.time)))
    torque = torques.max(axis=0)
    assert np.all(torque <= bound.torque)
    with np.printoptions(precision=2, suppress=True):
        print(f"\nerror / bound: position {position / bound.position}, velocity {velocity / bound.velocity}, "
              f"torque {torque / bound.torque}")  # fmt: skip
    assert (position / bound.position).max() > 0.1  # within a factor of ten of what happens


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hold_with_an_unknown_payload_stays_inside_from_the_take_over_on(robot, tools, seed):
    model, settings = ControlModel.of_boxes(robot), RobustSettings()
    bound = tracking_bound(robot, model, robot.home, settings)
    assert np.all(np.degrees(bound.position) < 0.5) and bound.settling_time < HOLD
    rng = np.random.default_rng(seed)
    payload = [np.zeros(10), sample_payload(robot.payload_prior, rng, corner=True), model.payload][seed]
    if seed == 2:  # the heaviest one
        payload = 2.0 * payload
    truth = sample_parameters(robot, rng, corner=True), payload
    at_rest = (robot.home, np.zeros(robot.n), np.zeros(robot.n))
    motion = SimpleNamespace(duration=1.0, evaluate=lambda t: at_rest)
    noise = ("uniform", "pushing", "undamping")[seed]
    run = drive(robot, tools, model, settings, truth, motion, noise=noise, seed=seed)
    assert np.all(np.abs(run.position) <= bound.take_over)
    settled = run.after(bound.settling_time - HOLD)
    assert np.all(np.abs(settled.position) <= bound.position)
    assert np.all(np.abs(settled.velocity) <= bound.velocity)
    assert np.all(np.abs(extra_torque(robot, settings, truth, motion, settled)) <= bound.torque)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_take_over_with_the_measured_torque_stays_inside(robot, tools, seed):
    """Friction and the errors of the sensors are in it, each as large as it can be; the payload is known well."""
    model, settings = known(robot), RobustSettings()
    bound = tracking_bound(robot, model, robot.home, settings)
    rng = np.random.default_rng(seed)
    truth = sample_parameters(robot, rng, corner=True), draw_payload(model, rng)
    total, sensors = add_payload(*truth), robot.sensors
    coulomb, _, _, offset = robot.friction(total).T
    effort = ArmDynamics(robot, total).gravity(robot.home) + offset
    sign = rng.choice([-1.0, 1.0], robot.n)
    effort = effort + sign * coulomb
    measured = effort + sign * (sensors.effort_relative_error * np.abs(effort) + sensors.effort_absolute_error)
    at_rest = (robot.home, np.zeros(robot.n), np.zeros(robot.n))
    motion = SimpleNamespace(duration=1.0, evaluate=lambda t: at_rest)
    run = drive(robot, tools, model, settings, truth, motion, balance=measured, noise="uniform", seed=seed)
    assert np.all(np.abs(run.position) <= bound.take_over)
    assert np.all(np.abs(run.after(bound.settling_time - HOLD).position) <= bound.position)


def test_motion_with_an_unknown_payload_stays_inside(robot, tools):
    model, settings, motion = ControlModel.of_boxes(robot), RobustSettings(), reach(robot, 3.0)
    bound = tracking_bound(robot, model, motion, settings)
    assert np.all(np.degrees(bound.position) < 1.0)
    rng = np.random.default_rng(11)
    truth = sample_parameters(robot, rng, corner=True), sample_payload(robot.payload_prior, rng, corner=True)
    run = drive(robot, tools, model, settings, truth, motion, noise="pushing").after(0.0)
    assert np.all(np.abs(run.position) <= bound.position)
    assert np.all(np.abs(run.velocity) <= bound.velocity)
    torques = np.abs(extra_torque(robot, settings, truth, motion, run))
    assert np.all(torques <= bound.torque_over(run.time, np.zeros_like(run.time)))


def test_the_torque_of_the_feedback_is_bounded_at_each_time(robot, fast):
    """Pieces of the motion have the largest bound of what they touch; after the end that of the last one counts."""
    _, motion, _, bound = fast
    step, count = bound.whole.samples.step, len(bound.torques)
    assert step * (count - 1) < motion.duration <= step * count + 1e-9
    np.testing.assert_array_equal(bound.torques.max(axis=0), bound.torque)
    whole, half = np.array([0.5 * motion.duration]), np.array([0.5 * motion.duration])
    np.testing.assert_array_equal(bound.torque_over(whole, half)[0], bound.torque)
    piece = bound.torque_over(np.array([20.5 * step]), np.array([1.2 * step]))[0]
    np.testing.assert_array_equal(piece, bound.torques[19:22].max(axis=0))
    after = bound.torque_over(np.array([motion.duration + 10.0]), np.zeros(1))[0]
    np.testing.assert_array_equal(after, bound.torques[-1])
    assert np.all(np.median(bound.torques, axis=0) < 0.95 * bound.torque)


def test_the_tube_is_about_the_smallest_one_where_friction_jumps():
    """Friction that is no longer compensated must not keep a tube large that one step of the search made too large."""
    robot = load_robot("franka_fr3", known_within=0.2)
    payload = from_com_form(0.8, np.array([0.0, 0.0, 0.18]), 2e-3 * np.eye(3))
    radius = 0.1 * np.abs(payload) + np.repeat([0.0, 1e-3, 1e-4], [1, 3, 6])
    model = ControlModel(robot.theta_nominal, robot.theta_box, payload, Box.around(payload, radius))
    settings, rng = RobustSettings(position_gain=14.0, integral_gain=14.0), np.random.default_rng(1)
    space = FourierSpace(robot.home, 3, 6.0, 24)
    x = rng.normal(size=(space.n, space.per_joint))
    _, v, a = (np.abs(part).max(axis=0) for part in space.states(x))
    x *= 0.35 / np.maximum(v / robot.limits.v_max, a / robot.limits.a_max)[:, None]
    motion = space.trajectory(x)
    bound = tracking_bound(robot, model, motion, settings)
    tube_map = TubeMap(robot, model, bound.whole.samples, settings)
    tube, is_inside = tube_map.empty_tube(), False
    while not is_inside:  # the plain iteration, which does not overshoot
        bounds = tube_map.evaluate(tube)
        image = tube_map.image(tube, bounds).scaled(1.0 + SETTLED)
        is_inside = tube.contains(image)
        tube = image if is_inside else tube.stepped(image.scaled(1.001), 1.0)
    smallest = (1.0 + SETTLED) * tube_map.bound_torque(tube, bounds).max(axis=0)
    assert np.all(bound.torque <= 1.02 * smallest)
    assert np.all(bound.velocity <= 1.02 * tube.velocity.max(axis=0))


@pytest.mark.parametrize("seed", [0, 1])
def test_hold_stays_inside_even_where_friction_drives_the_arm_on(robot, tools, monkeypatch, seed):
    """The bound lets friction have any sign near rest, also the one that no friction has."""
    model, settings = ControlModel.of_boxes(robot, payload=choose_payload(robot)), RobustSettings()
    bound = tracking_bound(robot, model, robot.home, settings)
    rng = np.random.default_rng(seed)
    theta, payload = sample_parameters(robot, rng, corner=True), sample_payload(robot.payload_prior, rng, corner=True)

    def driving(self, q, v, tau):
        sign = -np.minimum(np.maximum(v / 1e-3, -1.0), 1.0)
        effort = tau - self.coulomb * sign - self.viscous * v - self.offset
        return pin.aba(self.model, self.data, q, v, effort).copy()

    monkeypatch.setattr(tools.plant, "acceleration", driving)
    at_rest = (robot.home, np.zeros(robot.n), np.zeros(robot.n))
    motion = SimpleNamespace(duration=1.0, evaluate=lambda t: at_rest)
    run = drive(robot, tools, model, settings, (theta, payload), motion, noise="pushing", seed=seed).after(0.0)
    reached = [np.abs(run.position) / bound.position, np.abs(run.velocity) / bound.velocity]
    reached.append(np.abs(extra_torque(robot, settings, (theta, payload), motion, run)) / bound.torque)
    with np.printoptions(precision=2, suppress=True):
        print("\nerror / bound: position, velocity, torque", *(x.max(axis=0) for x in reached))
    assert np.all(np.array([x.max() for x in reached]) <= 1.0)
    assert np.all(np.array([x.max() for x in reached]) > 0.1)


@pytest.fixture(scope="module")
def weighed():
    """An LBR whose payload has been weighed, with its model, a motion and the bound."""
    lbr = load_textbook("kuka_lbr_med7")
    assert lbr.sensors.velocity_is_difference
    prior, settings = lbr.payload_prior.box, RobustSettings()
    lower, upper = prior.lower.copy(), prior.upper.copy()
    lower[:4], upper[:4] = [1.2, -0.1, -0.1, 0.1], [2.2, 0.1, 0.1, 0.6]
    box = Box(lower, upper)
    payload = weighed_payload(lbr, (lbr.theta_box, box), choose_payload(lbr), lbr.home)
    model = ControlModel.of_boxes(lbr, (lbr.theta_box, box), payload)
    goal = lbr.home + 0.15 * np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    motion = BezierTrajectory(lbr.home, np.zeros(lbr.n), np.zeros(lbr.n), goal, 3.0)
    return lbr, model, settings, motion, tracking_bound(lbr, model, motion, settings)


def test_velocity_errors_that_do_not_cancel_leave_no_bound(weighed):
    lbr, model, settings, motion, _ = weighed
    arbitrary = replace(lbr, sensors=replace(lbr.sensors, velocity_is_difference=False))
    with pytest.raises(BoundNotAvailable):
        tracking_bound(arbitrary, model, motion, settings)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_an_arm_that_sends_no_velocities_stays_inside(tools, weighed, seed):
    """The velocity is the difference of two positions."""
    lbr, model, settings, motion, bound = weighed
    rng = np.random.default_rng(seed)
    theta = sample_parameters(lbr, rng, corner=True)
    mass = [2.2, 1.2][seed]
    com = rng.choice([-1.0, 1.0], 3) * np.array([0.04, 0.04, 0.05]) + [0.0, 0.0, 0.15 + 0.03]
    true = from_com_form(mass, com, mass * 0.1**2 * np.eye(3))
    assert model.payload_box.contains(true)
    noise = ("pushing", "undamping")[seed]
    run = drive(lbr, tools, model, settings, (theta, true), motion, noise=noise, seed=seed).after(0.0)
    reached = [np.abs(run.position) / bound.position, np.abs(run.velocity) / bound.velocity]
    reached.append(np.abs(extra_torque(lbr, settings, (theta, true), motion, run)) / bound.torque)
    with np.printoptions(precision=2, suppress=True):
        print("\nerror / bound: position, velocity, torque", *(x.max(axis=0) for x in reached))
    assert np.all(np.array([x.max() for x in reached]) <= 1.0)
    assert np.all(np.array([x.max() for x in reached]) > 0.01)


def terms_in_corners(robot, tube_map, position, every):
    """Terms in the corners of a tube where each is largest, by its differences along each joint, (term, node).

    Also those that are used, as estimated.
    """
    samples, used, size = tube_map.samples, tube_map.terms.largest, position[every]
    names = [x.name for x in fields(ModelTerms) if x.name not in ("inertia", "torque_gradient")]

    def terms(away):
        states = TermStates(samples.q[every] + away, samples.v[every], samples.a[every])
        found = compute_model_terms(robot, tube_map.uncertainty, states)
        return np.stack([getattr(found, name) for name in names])

    rises = np.stack([terms(size * unit) > terms(-size * unit) for unit in np.eye(robot.n)], axis=-1)
    largest = [terms(np.where(rise, size, -size))[k] for k, rise in enumerate(rises)]
    return np.stack(largest), np.stack([getattr(used, x)[tube_map.spread[every]] for x in names])


@pytest.mark.slow
@pytest.mark.parametrize("is_wide", [False, True])
def test_terms_between_the_samples_and_anywhere_in_the_tube_are_covered(robot, tools, is_wide):
    """The dense check behind the allowance: terms where the arm may be, against what is used in the intervals.

    In the wide tube, of an arm that is known better and moves faster, an allowance that does not grow is caught.
    """
    model, motion, settings = known(robot), tools.fourier(robot, 4), RobustSettings()
    if is_wide:
        rng, (sine, cosine) = np.random.default_rng(2), rest_projection(5)
        start, size = robot.home + rng.uniform(-1.0, 1.0, robot.n), 0.45 * rng.normal(size=(2, robot.n, 4))
        motion = FourierTrajectory(start, size[0] @ sine.T, size[1] @ cosine.T, 1.0, 1.0)
        arm = Box.around(robot.theta_nominal, 0.3 * robot.theta_box.radius)
        model = replace(known(robot, 0.0), theta_box=arm)
    bound = tracking_bound(robot, model, motion, settings)
    samples, tube = bound.whole.samples, bound.whole.tube
    tube_map = TubeMap(robot, model, samples, settings)
    every = np.arange(3, len(samples.q) - 1, 20)
    along, used = terms_in_corners(robot, tube_map, 0.0 * tube.position, every)
    assert np.all(along <= SAMPLING * used)
    largest, used = terms_in_corners(robot, tube_map, tube.position, every)
    allowed = tube_map.allowance(tube)[every]
    assert np.all(largest <= allowed * used)
    assert np.any(largest > 1.05 * used) == is_wide
    for sign in (-1.0, 1.0):
        lower, upper = inertia_ratios(robot, tube_map.uncertainty, samples.q[every] + sign * tube.position[every])
        assert bound.inertia_ratios[0] <= lower.min() and upper.max() <= bound.inertia_ratios[1]


def test_torque_of_the_motion_changes_in_the_tube_by_no_more_than_is_allowed(robot, fast):
    """Also where an entry of its gradient is next to nothing along the motion, against Pinocchio."""
    model, _, settings, bound = fast
    samples, tube = bound.whole.samples, bound.whole.tube
    tube_map = TubeMap(robot, model, samples, settings)
    allowed = tube_map.turn_torque(tube) - tube_map.apply_gradient(
        np.tile(tube_map.sensor_errors[1], (len(samples.q) - 1, 1))
    )
    arm, rng, shares = ArmDynamics(robot, model.total, armature=True), np.random.default_rng(0), []
    for k in range(0, len(samples.q) - 1, 25):
        v, a = samples.v[k], samples.a[k]
        desired = arm.torque(samples.q[k], v, a)
        for _ in range(30):
            away = tube.position[k] * rng.choice([-1.0, 1.0], robot.n)
            shares.append(np.abs(arm.torque(samples.q[k] + away, v, a) - desired) / allowed[k])
    assert 0.5 < np.max(shares) <= 1.0


def test_couplings_that_vanish_at_the_desired_position_are_covered_beside_it(robot, fast):
    """The torque of a feedback acceleration is that of the inertia where the arm is, not where it should be."""
    model, motion, settings, bound = fast
    tube_map = TubeMap(robot, model, bound.whole.samples, settings)
    tube = bound.whole.tube
    bounds = tube_map.evaluate(tube)
    shift = tube_map.inertia_shift(tube)
    assert shift.max() == bounds.inputs.shift and np.median(shift) < 0.9 * shift.max()
    columns = [tube_map.apply_inertia(shift, np.tile(unit, (tube_map.intervals, 1))) for unit in np.eye(robot.n)]
    covered = np.stack(columns, axis=-1)  # (I, n, n)
    dynamics = ArmDynamics(robot, model.total, armature=True)
    rng, beyond = np.random.default_rng(0), 0
    for interval in range(0, tube_map.intervals, 12):
        desired = bound.whole.samples.q[interval]
        at = np.abs(dynamics.inertia(desired))
        errors = tube.position[interval] * rng.choice([-1.0, 1.0], (50, robot.n))
        beside = np.abs(np.stack([dynamics.inertia(desired + e) for e in errors]))
        assert np.all(beside <= covered[interval] * (1.0 + 1e-12))
        beyond += np.count_nonzero(beside > (1.0 + bounds.inputs.shift) * at)
    assert beyond > 100  # a share of the entry itself would not do


@pytest.mark.parametrize(
    ("build", "period", "reason"),
    [
        (lambda q: shake(q, 100.0), 1e-3, "no tracking bound: the highest harmonic of the motion has 200 Hz, at"),
        (lambda q: shake(q, 5.05), 1e-3, "has 10.1 Hz, at most 10 Hz are allowed: samples 10 ms apart"),
        (lambda q: shake(q, 1.5), 5e-3, "has 3 Hz, at most 2 Hz are allowed: samples 50 ms apart"),
        (lambda q: still(q, 0.49), 1e-3, "the motion lasts 0.49 s, at least 0.5 s are needed: samples 10 ms apart"),
        (lambda q: BrakedTrajectory(shake(q, 1.0), 0.5, 0.09), 1e-3, "stops within 0.09 s, at least 0.1 s are needed"),
        (lambda q: BrakedTrajectory(shake(q, 15.0), 0.1, 0.5), 1e-3, "the highest harmonic of the motion has 30 Hz"),
    ],
)
def test_a_motion_that_its_samples_do_not_show_has_no_bound(robot, build, period, reason):
    """At 100 and 200 Hz all samples, 10 ms apart, see the same state: it would be certified as if it were held."""
    settings = RobustSettings(period=period, delay=period, bandwidth=min(200.0, 0.2 / period))
    with pytest.raises(BoundNotAvailable, match=re.escape(reason)):
        tracking_bound(robot, known(robot, 0.05), build(robot.home), settings)


def test_motions_that_their_samples_just_show_have_bounds(robot):
    for motion in (shake(robot.home, 5.0), shake(robot.home, 2.5, unused=9), still(robot.home, 0.5)):
        assert np.isfinite(tracking_bound(robot, known(robot, 0.05), motion).torque).all()


def shake(q, frequency, unused=0):
    """All joints at a frequency and twice that, ``unused`` higher harmonics being zero."""
    size = 0.5 / (2.0 * np.pi * frequency)
    cosine = np.tile(np.r_[2.0 * size, -size, np.zeros(unused)], (q.size, 1))
    periods = max(1.0, np.round(0.5 * frequency))
    return FourierTrajectory(q, np.zeros_like(cosine), cosine, frequency, periods / frequency)


def still(q, duration):
    zero = np.zeros_like(q)
    return BezierTrajectory(q, zero, zero, q, duration)


@pytest.mark.slow
def test_payload_outside_the_box_breaks_the_bound(robot, tools, fast):
    model, motion, settings, bound = fast
    heavy = 7.0 * model.payload
    assert not model.payload_box.contains(heavy)
    strong = replace(robot, limits=replace(robot.limits, tau_max=10.0 * robot.limits.tau_max))
    run = drive(strong, tools, model, settings, (robot.theta_nominal, heavy), motion).after(0.0)
    assert np.any(np.abs(run.position).max(axis=0) > bound.position)


def test_less_uncertainty_gives_a_smaller_bound(robot, fast):
    _, motion, settings, bound = fast
    better = tracking_bound(robot, known(robot, share=0.03), motion, settings)
    assert np.all(better.position < bound.position) and np.all(better.torque < bound.torque)
    still = tracking_bound(robot, known(robot), robot.home, settings)
    assert np.all(still.position < bound.position)
    quick = tracking_bound(robot, known(robot), motion, RobustSettings(delay=0.0))
    assert np.all(quick.position < bound.position)
    assert set(bound.shares) == {"friction", "model", "sensors", "coupling", "errors themselves"}
    assert np.all(sum(bound.shares.values()) >= 0.95 * bound.position)


def test_where_there_is_no_bound_the_reason_is_given(robot):
    prior = ControlModel.of_boxes(robot)
    with pytest.raises(
        BoundNotAvailable, match="no tracking bound: .*(narrow the parameter boxes|the parameter boxes are too wide)"
    ):
        tracking_bound(robot, prior, reach(robot, 0.8))
    with pytest.raises(BoundNotAvailable, match="unstable where the true inertia is"):
        tracking_bound(robot, prior, robot.home, RobustSettings(bandwidth=600.0))


def test_every_robot_can_be_held():
    for name in ("kinova_gen3", "kuka_lbr_iiwa14", "kuka_lbr_med7"):
        robot = load_robot(name)
        payload = robot.payload_prior.nominal
        model = ControlModel(robot.theta_nominal, robot.theta_box, payload, Box.around(payload, 0.1 * np.abs(payload)))
        bound = tracking_bound(robot, model, robot.home)
        assert np.all(np.degrees(bound.position) < 1.0), name


def test_an_arm_with_more_joints_than_the_kernel_has_rows_is_refused():
    with pytest.raises(ParameterOutOfRange, match="invalid number of joints that the controller moves 9.*at most 8"):
        tracking_bound(SimpleNamespace(n=9), None, np.zeros(9))
