"""Chains of plans that start in motion, with boxes that shrink on the way, against the simulated sampled loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import ControlModel, RobustController, RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.tracking_bound import BoundNotAvailable, choose_payload
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.trajectories.families import BezierTrajectory

PERIOD, T_P, RANGE = 1e-3, 1.5, 0.26
HOLD = 1.3  # s; longer than the settling time


@dataclass
class Stage:
    """A plan, the model it is executed with, and its bound."""

    plan: BezierTrajectory
    model: ControlModel
    bound: object


def make_chain(robot, models, rng):
    """One plan per model, each from the state of the one before at T_P."""
    zero = np.zeros(robot.n)
    state, history, stages = (robot.home, zero, zero), None, []
    for model in models:
        goal = state[0] + RANGE * rng.choice([-1.0, 1.0], robot.n)
        plan = BezierTrajectory(*state, goal, 3.0)
        bound = tracking_bound(robot, model, plan, history=history)
        stages.append(Stage(plan, model, bound))
        state, history = plan.evaluate(T_P), bound.until(T_P)
    return stages


def execute(robot, tools, stages, truth, **conditions):
    """Runs a chain; the controller gets the model of a plan in the cycle in which the plan starts."""
    # What the motions need is not checked here, so the motors are strong enough for any.
    strong = replace(robot, limits=replace(robot.limits, tau_max=10.0 * robot.limits.tau_max))
    controller = RobustController(strong)
    cycle = [0]

    class Switching:
        def compute(self, *state):
            stage, late = divmod(cycle[0] - round(HOLD / PERIOD), round(T_P / PERIOD))
            if cycle[0] == 0 or (late == 0 and 0 < stage < len(stages)):
                model = stages[max(stage, 0)].model
                controller.set_model(model.theta, model.theta_box, model.payload, model.payload_box)
            cycle[0] += 1
            return controller.compute(*state)

    def reference(time):
        stage = int(np.clip(np.floor(time / T_P + 1e-9), 0, len(stages) - 1))
        return stages[stage].plan.evaluate(max(time - stage * T_P, 0.0))

    duration = T_P * (len(stages) - 1) + 3.3
    run = tools.run(robot, Switching(), truth, reference, duration, HOLD, **conditions)
    assert controller.saturated_cycles == 0
    return run, reference


def ratios(robot, stages, truth, run, reference):
    """Largest errors in units of the bounds, (stages, 3): position, velocity, torque."""
    settings, total = RobustSettings(), add_payload(*truth)
    dynamics = ArmDynamics(robot, total, armature=True)
    coulomb, viscous, _, offset = total[10 * robot.n :].reshape(robot.n, 4).T
    largest = np.zeros((len(stages), 3))
    for time, position, velocity, tau in zip(run.time, run.position, run.velocity, run.torque, strict=True):
        if time < -1e-9:
            continue
        q, v, a = reference(time)
        needed = dynamics.passive_torque(q, v, v, a) + coulomb * settings.friction_share(v) + viscous * v + offset
        stage = min(int(np.floor(time / T_P + 1e-9)), len(stages) - 1)
        bound = stages[stage].bound
        errors = ((position, bound.position), (velocity, bound.velocity), (tau - needed, bound.torque))
        largest[stage] = np.maximum(largest[stage], [(np.abs(x) / limit).max() for x, limit in errors])
    return largest


def narrowed(robot, payload, share, nominal=None):
    """A model as after an identification: a box around the true payload, cut with the prior's."""
    prior = robot.payload_prior
    box = Box.around(payload, share * prior.box.width).intersect(prior.box)
    boxes = robot.theta_box, box
    return ControlModel.of_boxes(robot, boxes, choose_payload(robot, boxes, payload) if nominal is None else nominal)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "delay", "seed"), [("uniform", 1, 0), ("pushing", 1, 1), ("undamping", 0, 2)])
def test_chain_stays_inside_while_the_boxes_shrink(robot, tools, noise, delay, seed):
    rng = np.random.default_rng(seed)
    theta, payload = sample_parameters(robot, rng, corner=True), sample_payload(robot.payload_prior, rng, corner=True)
    first = ControlModel.of_boxes(robot, payload=choose_payload(robot))
    models = [first, first, *(narrowed(robot, payload, share, first.payload) for share in (0.2, 0.05))]
    stages = make_chain(robot, models, rng)
    assert np.all(np.degrees(stages[0].bound.position) < 1.0)
    assert np.all(np.degrees(stages[1].bound.position) < 1.1)
    assert stages[0].bound.settling_time < HOLD
    run, reference = execute(robot, tools, stages, (theta, payload), noise=noise, delay=delay, seed=seed)
    reached = ratios(robot, stages, (theta, payload), run, reference)
    with np.printoptions(precision=2, suppress=True):
        print(f"\nerror / bound of position, velocity, torque, by plan:\n{reached}")
    assert np.all(reached <= 1.0)
    assert np.all(reached.max(axis=0) > 0.05)  # not vacuous
    # What is known of the payload at the end makes the last bound the smallest, with the payload chosen for it.
    after = tracking_bound(robot, narrowed(robot, payload, 0.05), robot.home)
    assert after.torque.sum() < 0.9 * stages[0].bound.torque.sum()


def test_history_adds_what_the_plan_before_leaves(robot):
    """A hold after a motion is bounded like that motion at first; without a motion before, like a hold from rest."""
    model = narrowed(robot, robot.payload_prior.nominal, 0.1)
    zero = np.zeros(robot.n)
    rest = tracking_bound(robot, model, robot.home)
    still = tracking_bound(robot, model, robot.home, history=_held(robot, model).until(0.4))
    np.testing.assert_allclose(still.position, rest.position, rtol=0.02)
    plan = BezierTrajectory(robot.home, zero, zero, robot.home + RANGE, 3.0)
    moved = tracking_bound(robot, model, plan)
    goes_on = BezierTrajectory(*plan.evaluate(T_P), plan.end, 1.5)
    after = tracking_bound(robot, model, goes_on, history=moved.until(T_P))
    assert np.all(after.position > 1.05 * rest.position) and np.all(after.position < 1.3 * moved.position)


def _held(robot, model):
    zero = np.zeros(robot.n)
    return tracking_bound(robot, model, BezierTrajectory(robot.home, zero, zero, robot.home, 1.0))


def test_the_nominal_payload_may_be_kept_while_the_boxes_shrink(robot):
    """Narrower bounds never makes the bound larger if the controller stays what it is."""
    rng = np.random.default_rng(1)
    first = ControlModel.of_boxes(robot, payload=choose_payload(robot))
    box = narrowed(robot, 1.6 * robot.payload_prior.nominal, 0.1).payload_box
    assert not box.contains(first.payload)
    kept = ControlModel.of_boxes(robot, (robot.theta_box, box), first.payload)
    stages = make_chain(robot, [first, first], rng)
    state, history = stages[0].plan.evaluate(T_P), stages[0].bound.until(T_P)
    assert np.all(tracking_bound(robot, kept, robot.home).torque < tracking_bound(robot, first, robot.home).torque)
    plan = BezierTrajectory(*state, state[0] - 0.2, 3.0)
    known, unknown = (tracking_bound(robot, one, plan, history=history) for one in (kept, first))
    assert np.all(known.position < 1.001 * unknown.position) and np.all(known.torque < 1.001 * unknown.torque)


def test_histories_that_do_not_fit_are_refused(robot):
    model = narrowed(robot, robot.payload_prior.nominal, 0.1)
    bound = _held(robot, model)
    boxes = (model.theta_box, model.payload_box)
    with pytest.raises(ParameterOutOfRange, match=r"a multiple of 0.01 up to 1.5"):
        bound.until(0.503)
    with pytest.raises(ParameterOutOfRange, match=r"a multiple of 0.01 up to 1.5"):
        bound.until(7.0)
    with pytest.raises(ParameterOutOfRange, match="start position .* the state at the takeover"):
        tracking_bound(
            robot, ControlModel.of_boxes(robot, boxes, model.payload), robot.home + 0.01, history=bound.until(0.5)
        )
    with pytest.raises(ParameterOutOfRange, match="controller of the history"):
        settings = RobustSettings(bandwidth=100.0)
        tracking_bound(
            robot, ControlModel.of_boxes(robot, boxes, model.payload), robot.home, settings, bound.until(0.5)
        )
    with pytest.raises(BoundNotAvailable, match="keep its nominal payload, or start from rest"):
        tracking_bound(
            robot, ControlModel.of_boxes(robot, boxes, 1.1 * model.payload), robot.home, history=bound.until(0.5)
        )
    moving = BezierTrajectory(robot.home, np.full(robot.n, 0.1), np.zeros(robot.n), robot.home, 3.0)
    with pytest.raises(ParameterOutOfRange, match="start velocity .* the state at the takeover"):
        tracking_bound(robot, ControlModel.of_boxes(robot, boxes, model.payload), moving, history=bound.until(0.5))
