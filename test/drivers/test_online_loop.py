"""The torque loop under computed torque with a model that is fitted beside it: gate, changes, what it may move."""

from dataclasses import replace

import numpy as np
import pytest
from driver_doubles import build_loop, make_certificate, make_move, run, started

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import GravityPid, OnlineModelController, RobustController
from sysid_ros.core.control.baselines import GateSettings, OnlineModelSettings
from sysid_ros.core.control.model_fitter import FittedModel
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.online_model.least_squares import Observation, OnlineFit, OnlineFitSettings
from sysid_ros.drivers.channel import collect_samples
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopRefusal, LoopSettings, RefusalCode

SETTINGS = OnlineModelSettings(
    frequency=40.0,
    observation=Observation.MOMENTUM,
    fit=OnlineFitSettings(capacity=40, rate=10.0),
    gate=GateSettings(patience=1.5),
)
HEAVY = from_com_form(2.0, [0.0, 0.02, 0.1], np.diag([0.005, 0.005, 0.003]))
HELD = from_com_form(0.5, [0.0, 0.0, 0.1], np.diag([0.001, 0.001, 0.001]))
"""What the nominal model knows of: a quarter of it."""


def build(robot, controller=None, **settings):
    """A loop whose model is wrong about what the arm holds, at rest, and what fits beside it."""
    controller = controller or OnlineModelController(robot, SETTINGS, learns=False)
    loop = build_loop(robot, HEAVY, LoopSettings(allows_uncertified=True, **settings), controller=controller)
    loop.set_model(replace(loop.model, payload=HELD), is_reset=True)
    loop.connect()
    run(loop, 0.3)
    return loop, SETTINGS.make_fitter(robot, controller.model)


def follow(loop, goals, fitter=None, spoil=lambda samples: samples):
    """Move to one posture after the other, with the fit beside the loop as the driver does it; return all samples."""
    collected = []
    for goal in goals:
        start = loop.status().reference
        loop.follow_uncertified(make_move(start, goal - start, 1.6))
        while loop.mode is LoopMode.TRACK:
            samples = run(loop, 0.02)
            collected += samples
            cycles = spoil(collect_samples(samples, loop.robot.n))
            fitted = None if fitter is None else fitter.add(cycles.block, cycles.modes == LoopMode.TRACK)
            if fitted is not None:
                loop.offer_model(fitted)
        assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK, loop.status().reason
    return collected


def perfect_fit(loop):
    """A fit that gives the true parameters."""
    theta = add_payload(loop.robot.theta_nominal, HEAVY)
    nothing = np.zeros(loop.robot.n)
    fit = OnlineFit(theta, nothing + 1.0, 30, True)
    return FittedModel(fit, loop.status().online_model.nominal, (1.0, 1.4), nothing, nothing + 1.0)


def errors(samples):
    return np.abs(np.mean([sample.q_d - sample.q for sample in samples], axis=0)).max()


@pytest.mark.slow
def test_a_wrong_model_is_replaced_in_the_loop_and_dropped_when_data_get_bad(robot):
    loop, fitter = build(robot)
    rng = np.random.default_rng(1)
    goals = [*(robot.home + rng.uniform(-0.4, 0.4, (4, robot.n))), robot.home]
    before = follow(loop, goals[:2], fitter)
    status = loop.status().online_model
    assert not status.model.fit.is_full or not status.is_open
    follow(loop, goals[2:], fitter)
    status = loop.status().online_model
    assert status.is_open and status.share == 1.0 and not status.joints
    after = follow(loop, goals[:2], fitter)
    assert errors(after) < 0.3 * errors(before)

    def spoil(samples):  # efforts that have nothing to do with the motion any more
        noise = 30.0 * rng.normal(size=robot.n)
        return replace(samples, block=replace(samples.block, tau=samples.block.tau + noise))

    bad = follow(loop, goals[2:3], fitter, spoil)
    status = loop.status().online_model
    assert not status.is_open and status.share == 0.0 and status.joints
    jumps = [np.abs(np.diff([one.tau_command for one in part], axis=0)).max() for part in (before, bad)]
    assert jumps[1] < 2.0 * jumps[0]


def test_without_fits_the_loop_returns_to_its_nominal_model(robot):
    loop, _ = build(robot)
    loop.offer_model(perfect_fit(loop))
    run(loop, 1.0)
    assert loop.status().online_model.is_open and loop.status().online_model.share == 1.0  # at rest nothing is measured
    follow(loop, [robot.home + 0.3, robot.home])  # what fits beside the loop has died
    status = loop.status().online_model
    assert not status.is_open and status.share < 1.0


def test_another_nominal_model_begins_again_and_refuses_what_was_fitted_from_the_old_one(robot):
    loop, _ = build(robot)
    fitted = perfect_fit(loop)
    assert loop.offer_model(fitted) and loop.status().online_model.is_open
    loop.set_model(replace(loop.model, payload=2.0 * HELD))
    assert not loop.status().online_model.is_open and loop.status().online_model.model is None
    assert not loop.offer_model(fitted) and loop.status().online_model.model is None


def test_limits_and_monitors_stay_as_they_are(robot):
    """A model that is wrong and let through all the same moves nothing further than the monitors allow."""
    loop, _ = build(robot)
    fitted = perfect_fit(loop)
    wrong = replace(fitted, fit=replace(fitted.fit, theta=-3.0 * fitted.fit.theta))
    loop.offer_model(wrong)
    samples = run(loop, 1.5)
    assert loop.mode is LoopMode.FAULT and loop.status().code in (LoopCode.TRACKING_ERROR, LoopCode.LIMIT)
    sent = np.array([sample.tau_command for sample in samples])
    assert (np.abs(sent[np.isfinite(sent).all(axis=1)]) <= robot.limits.tau_max).all()


@pytest.mark.parametrize("law", [RobustController, GravityPid, OnlineModelController])
def test_who_may_move_without_a_certificate(robot, law):
    """Laws without a bound, in simulation; never the one that has a bound, and none where the loop forbids it."""
    for allowed in (False, True):
        loop = started(build_loop(robot, controller=law(robot), settings=LoopSettings(allows_uncertified=allowed)), 0.3)
        move = make_move(loop.status().reference, 0.2)
        if allowed and law is not RobustController:
            loop.follow_uncertified(move)
            status = loop.status()
            assert status.mode is LoopMode.TRACK and status.plan_id is None and np.isinf(status.tracking_bound).all()
            assert status.reason == "following bezier without a certificate"
            loop.brake("test")
            run(loop, 0.5)
            assert loop.mode is LoopMode.HOLD
        else:
            with pytest.raises(LoopRefusal, match="it has no certificate") as refusal:
                loop.follow_uncertified(move)
            assert refusal.value.code is RefusalCode.NO_CERTIFICATE and loop.mode is LoopMode.HOLD


def test_what_is_asked_of_a_motion_without_a_certificate(robot):
    loop, _ = build(robot)
    held = loop.status().reference
    with pytest.raises(LoopRefusal, match="it starts 0.100000 rad away from the held position"):
        loop.follow_uncertified(make_move(held + 0.1))
    with pytest.raises(LoopRefusal, match="which exceeds its limits"):
        loop.follow_uncertified(make_move(held, 3.0, 2.0))
    with pytest.raises(LoopRefusal, match="it takes 130 s, allowed are 120 s"):
        loop.follow_uncertified(make_move(held, 0.1, 130.0))
    loop.follow_uncertified(make_move(held))
    with pytest.raises(LoopRefusal, match="must hold its position, but the loop is in TRACK"):
        loop.follow_uncertified(make_move(held))
    late = make_certificate(loop, make_move(held), predecessor="a" * 64, takeover_time=0.5)
    with pytest.raises(LoopRefusal, match="it continues plan a"):
        loop.execute(make_move(held), late)


def test_only_a_law_that_uses_models_takes_one(robot):
    loop, _ = build(robot)
    fitted = perfect_fit(loop)
    other = build_loop(robot)
    with pytest.raises(LoopRefusal, match="uses no model fitted online"):
        other.offer_model(fitted)
    assert other.status().online_model is None
    with pytest.raises(ParameterOutOfRange, match="finite numbers"):
        loop.offer_model(replace(fitted, fit=replace(fitted.fit, theta=np.full_like(fitted.fit.theta, np.inf))))
