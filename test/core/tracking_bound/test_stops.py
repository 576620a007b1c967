"""Bounds of all stops of a motion: against bounds of single stops, dense model errors, and a simulation of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.verify import certify
from sysid_ros.core.common.box import Box
from sysid_ros.core.control import ControlModel, RobustController, RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import EffortMeaning, PayloadPrior
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.tracking_bound import BoundNotAvailable, choose_payload, tracking_bound
from sysid_ros.core.tracking_bound import stops as stops_module
from sysid_ros.core.tracking_bound.stops import PathCells, StopBound, _Clock, _StopMap
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

BRAKE_TIME = 0.5
DIRECTIONS = np.array([0.9, -0.7, 1.0, 0.8, -1.0, 0.6, 1.0])


def through(robot, reach, duration=3.0, state=None):
    """A motion of all joints from rest, or from a state."""
    q, v, a = state or (robot.home, np.zeros(robot.n), np.zeros(robot.n))
    return BezierTrajectory(q, v, a, q + reach * DIRECTIONS, duration)


@pytest.fixture(scope="module")
def model(robot):
    prior = robot.payload_prior
    boxes = robot.theta_box, prior.box
    return ControlModel.of_boxes(robot, boxes, choose_payload(robot, boxes, prior.nominal))


@pytest.fixture(scope="module")
def known(robot, model):
    """A path, its bound and that of all of its stops."""
    path = through(robot, 0.6)
    bound = tracking_bound(robot, model, path)
    return path, bound, bound.in_stops(BRAKE_TIME)


def largest_share(bound, stops, one):
    """Largest share of what is proven of all stops, and of their path, that the bound of one of them takes."""
    pairs = (
        (one.position, np.maximum(bound.position, stops.position)),
        (one.velocity, np.maximum(bound.velocity, stops.velocity.max(axis=0))),
        (one.torque, np.maximum(bound.torque, stops.torque.max(axis=0))),
    )
    return max(float((value / allowed).max()) for value, allowed in pairs)


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_the_bound_of_no_single_stop_is_larger(robot, model, known, is_taken_over):
    """They begin at nodes of the motion: elsewhere one pays for the jump of the jerk."""
    path, bound, stops = known
    history = None
    if is_taken_over:
        history = bound.until(1.5)
        path = through(robot, 0.3, 2.0, path.evaluate(1.5))
        bound = tracking_bound(robot, model, path, history=history)
        stops = bound.in_stops(BRAKE_TIME)
    shares = []
    for begin in (0.0, 0.7, 1.3, path.duration):
        one = tracking_bound(robot, model, BrakedTrajectory(path, begin, BRAKE_TIME), history=history)
        shares.append(largest_share(bound, stops, one))
    assert np.max(shares) <= 1.0
    assert np.max(shares) > 0.75
    assert np.all(stops.position < 1.75 * bound.position)


def worst_share_of_the_enclosure(robot, model, path, stop_map, rng, begin):
    """Largest share of the enclosed change of the model error since a stop began that random arms reach."""
    cells = stop_map._cells
    stop = BrakedTrajectory(path, begin, BRAKE_TIME)
    times = np.linspace(begin, begin + BRAKE_TIME, 101)
    middle = 0.5 * (times[1:] + times[:-1])

    def found(at):
        x = (at - begin) / BRAKE_TIME
        clock = begin + BRAKE_TIME * (x - x**3 + 0.5 * x**4)
        j = np.clip(np.searchsorted(cells.path.times, clock, side="right") - 1, 0, len(cells.path.times) - 2)
        return j, np.minimum((x * (len(cells.upper) - 1)).astype(int), len(cells.upper) - 2)

    rate, missed = cells.rate.entries[found(middle)], cells.torques(cells.missed).entries[found(times)]
    allowed = np.cumsum(rate, axis=0) * (times[1] - times[0]) + missed[1:] + missed[0]
    q, v, a = stop.sample(times)
    settings = RobustSettings()
    columns = SlotineLiRegressor(robot, EffortMeaning.MOTOR_SIDE).evaluate(
        q, v, v, a, direction=settings.friction_share(v)
    )
    inertia = ArmDynamics(robot, model.total, armature=True).inertia(q)
    shares = []
    for k in range(6):
        true = add_payload(
            sample_parameters(robot, rng, corner=True), sample_payload(robot.payload_prior, rng, corner=k % 2)
        )
        error = np.linalg.solve(inertia, (columns @ (true - model.total))[..., None])[..., 0]
        shares.append((np.abs(error[1:] - error[0]) / allowed).max())
    return max(shares)


def test_model_errors_of_stops_are_enclosed_whenever_they_begin(robot, model, known):
    path, bound, _ = known
    rng, proof = np.random.default_rng(3), bound.proof
    stop_map = _StopMap(PathCells(proof.tube_map), proof.tube, proof.bounds.inputs, path.duration, BRAKE_TIME)
    reached = [
        worst_share_of_the_enclosure(robot, model, path, stop_map, rng, begin) for begin in rng.uniform(0.0, 2.4, 8)
    ]
    assert 0.3 < max(reached) <= 1.0


def test_an_enclosure_that_is_too_small_is_caught(robot, model, known, monkeypatch):
    path, bound, _ = known
    rng, proof = np.random.default_rng(3), bound.proof

    def small(brake_time, ends, age):
        clock = _Clock(brake_time, np.array(ends), age)
        clock.factors *= 0.2
        return clock

    monkeypatch.setattr(stops_module, "_clock", small)
    stop_map = _StopMap(PathCells(proof.tube_map), proof.tube, proof.bounds.inputs, path.duration, BRAKE_TIME)
    reached = [worst_share_of_the_enclosure(robot, model, path, stop_map, rng, begin) for begin in (0.8, 1.2, 1.6)]
    assert max(reached) > 1.0


def test_cells_of_the_path_reach_from_its_start_to_rest(robot, known):
    path, bound, stops = known
    assert stops.times[0] <= 0.0 and stops.times[-1] >= path.duration + 0.4
    assert np.all(np.diff(stops.times) > 0.0) and stops.rates[0] == 1.0 and stops.rates[-1] == 0.0


def test_what_stops_share_is_worked_out_once_and_not_changed(robot, model, monkeypatch):
    path, built = through(robot, 0.3, 2.0), []
    build = PathCells.__init__
    monkeypatch.setattr(PathCells, "__init__", lambda self, tube_map: (built.append(self), build(self, tube_map))[1])
    bound = tracking_bound(robot, model, path)
    first, second = bound.in_stops(0.5), bound.in_stops(1.2)
    assert len(built) == 1
    for stops, time in ((first, 0.5), (second, 1.2)):
        alone = tracking_bound(robot, model, path).in_stops(time)
        for name in ("position", "rates", "velocity", "times", "torque"):
            np.testing.assert_array_equal(getattr(stops, name), getattr(alone, name))
    assert len(built) == 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_an_arm_that_stops_stays_inside(robot, tools, seed):
    """Stops begin at any time, and the arm is integrated by code of its own."""
    rng, settings, payload = np.random.default_rng(seed), RobustSettings(), robot.payload_prior.nominal
    radius = 0.15 * np.array([1.25, 0.08, 0.08, 0.28, 0.07, 0.02, 0.07, 0.02, 0.02, 0.02])
    model = ControlModel(robot.theta_nominal, robot.theta_box, payload, Box.around(payload, radius))
    path = through(robot, 0.6, 1.2)
    stops = tracking_bound(robot, model, path).in_stops(BRAKE_TIME)
    begin = rng.uniform(0.3, 0.7) * path.duration
    stop = BrakedTrajectory(path, begin, BRAKE_TIME)
    carried = sample_payload(PayloadPrior(model.payload_box, payload), rng, corner=True)
    truth = sample_parameters(robot, rng, corner=True), carried
    controller = RobustController(robot, settings)
    controller.set_model(model.theta, model.theta_box, model.payload, model.payload_box)
    controller.reset()
    noise = ("uniform", "pushing", "undamping")[seed]
    run = tools.run(robot, controller, truth, stop.evaluate, stop.duration + 0.3, 1.3, noise=noise, seed=seed)
    run, total = run.after(begin), add_payload(*truth)
    assert controller.saturated_cycles == 0
    index = np.clip(((run.time - begin) / (BRAKE_TIME / 12)).astype(int), 0, len(stops.velocity) - 1)
    allowed = np.maximum(stops.velocity[index], stops.velocity[np.maximum(index - 1, 0)])
    dynamics = ArmDynamics(robot, total, armature=True)
    coulomb, viscous, _, offset = total[10 * robot.n :].reshape(robot.n, 4).T
    needed = []
    for time in run.time:
        q, v, a = stop.evaluate(time)
        needed.append(dynamics.passive_torque(q, v, v, a) + coulomb * settings.friction_share(v) + viscous * v + offset)
    x = np.clip((run.time - begin) / BRAKE_TIME, 0.0, 1.0)
    clock = begin + BRAKE_TIME * (x - x**3 + 0.5 * x**4)
    shares = (
        np.abs(run.position) / stops.position,
        np.abs(run.velocity) / allowed,
        np.abs(run.torque - np.array(needed)) / stops.torque_over(clock, np.full(len(clock), 1e-3)),
    )
    print("\nposition, velocity, torque over their bounds", [round(float(share.max()), 3) for share in shares])
    assert max(share.max() for share in shares) <= 1.0
    assert max(share.max() for share in shares) > 0.05


def test_errors_in_stops_leave_room_for_the_speed_of_the_path():
    velocity = np.array([[0.1], [0.15], [0.3]])
    stops = StopBound(1.0, np.zeros(1), np.array([1.0, 0.8, 0.0]), velocity, np.array([0.0, 1.0]), np.ones((1, 1)))
    for limit in (0.4, 1.0):
        error = stops.speed_errors(np.array([limit]))[0]
        reached = stops.rates * (limit - error) + velocity[:, 0]
        assert reached.max() == pytest.approx(limit) or error == pytest.approx(0.1)
        assert np.all(reached <= limit + 1e-12)
    assert stops.speed_errors(np.array([0.2]))[0] == np.inf


def test_torques_of_stops_are_those_of_all_cells_a_piece_meets():
    torque = np.array([[1.0], [3.0], [2.0]])
    stops = StopBound(1.0, np.zeros(1), np.ones(1), np.ones((1, 1)), np.array([-0.1, 1.0, 2.0, 3.0]), torque)
    middle, half = np.array([0.5, 1.0, 2.5, 3.5]), np.array([0.2, 0.1, 0.4, 0.1])
    np.testing.assert_array_equal(stops.torque_over(middle, half)[:, 0], [1.0, 3.0, 2.0, 2.0])
    np.testing.assert_array_equal(stops.torque_over(np.array([2.5]), np.array([0.5])), [[3.0]])


def test_plans_are_refused_that_change_the_nominal_payload(robot, model, known):
    """There is no bound while it changes, neither of their errors nor of those in stops, and so no certificate."""
    path, bound, _ = known
    narrow = Box.around(robot.payload_prior.nominal, 0.1 * robot.payload_prior.box.width)
    plan, history = through(robot, 0.1, 3.0, path.evaluate(1.5)), bound.until(1.5)
    same = Assumptions(robot, (robot.theta_box, narrow), model.payload)
    with pytest.raises(BoundNotAvailable, match="keep its nominal payload, or start from rest"):
        replace(same, nominal=1.5 * model.payload).bound(plan, history)
    assert "stops along the path that begin at any time" in certify(same, plan, same.bound(plan, history)).claims
    with pytest.raises(BoundNotAvailable, match="was discarded"):
        bound.without_proof().in_stops(BRAKE_TIME)
