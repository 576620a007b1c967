import re
from dataclasses import replace

import numpy as np
import pytest
from driver_doubles import ComputedTorque, build_loop, make_certificate, make_move, run, started
from textbook import load_textbook, textbook_file

from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.common.box import Box
from sysid_ros.core.control import CONTROLLERS, RobustController
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.tracking_bound.nominal_payload import counterweights
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.arm import ArmError, InjectedFaults
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopRefusal, LoopSettings
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.registry import LoopSetup
from sysid_ros.drivers.registry import build_loop as build_loop_of
from sysid_ros.emulators.lockstep import run_for, run_trajectory

# Largest change of reference [rad] and of commanded torque [Nm] between two cycles of the moves below.
REFERENCE_STEP = 0.7e-3
TORQUE_STEP = 2.5


@pytest.fixture
def loop(robot):
    loop = started(build_loop(robot), 0.25)
    return loop


def start_move(loop, step=0.4, duration=1.5, **certificate):
    plan = make_move(loop.status().reference, step, duration)
    loop.execute(plan, make_certificate(loop, plan, **certificate))
    return plan


def require_smooth(samples):
    q_d, tau = (np.array([getattr(s, name) for s in samples]) for name in ("q_d", "tau_command"))
    assert np.abs(np.diff(q_d, axis=0)).max() < REFERENCE_STEP
    assert np.abs(np.diff(tau, axis=0)).max() < TORQUE_STEP


def require_rest(loop, seconds=0.3):
    """The real arm, not its sensors, stands still."""
    run(loop, seconds)
    before = loop.arm.truth().q
    run(loop, 0.3)
    truth = loop.arm.truth()
    assert np.abs(truth.v).max() < 5e-3
    assert np.abs(truth.q - before).max() < 1e-3


def mock_loop(**settings):
    return build_loop_of(LoopSetup.mock(textbook_file(), **settings))


# Normal course


def test_holds_where_it_was_found(robot, loop):
    status = loop.status()
    assert status.mode is LoopMode.HOLD and status.code is LoopCode.OK and not status.is_taking_over
    np.testing.assert_allclose(status.reference, robot.home, atol=robot.sensors.position_resolution.max())
    require_smooth(run(loop, 0.3))
    np.testing.assert_allclose(loop.arm.truth().q, robot.home, atol=1e-3)


@pytest.mark.parametrize("heavier", [0.0, 1.0])
def test_takeover_has_no_jump_even_with_a_wrong_model(robot, heavier):
    payload = robot.payload_prior.nominal * (1.0 + heavier)
    loop = build_loop(robot, payload=payload)
    loop.connect()
    first = run(loop, 0.001)[0]
    assert np.abs(first.tau_command - first.tau).max() < 1e-9
    assert loop.status().is_taking_over
    with pytest.raises(LoopRefusal, match="torque is still being blended in for 0.20 s"):
        start_move(loop)
    require_smooth([first, *run(loop, 0.5)])
    assert np.abs(loop.arm.truth().q - robot.home).max() < 0.05


@pytest.mark.parametrize("model", ["kuka_lbr_med7", "kinova_gen3"])
def test_an_arm_with_an_unknown_payload_does_not_sink_when_it_is_taken_over(model):
    """The controller knows a lighter payload; it begins with the torque that was measured to balance this one."""
    robot = load_textbook(model)
    payload = 0.9 * robot.payload_prior.box.upper[0] * np.array([1.0, 0.02, 0.02, 0.1, 0.02, 0.0, 0.02, 0.0, 0.0, 0.01])
    loop = ControlLoop(MujocoArm(robot, None, payload), RobustController(robot), robot)
    loop.connect()
    for _ in range(1000):
        loop.step()
        assert np.abs(loop.arm.truth().q - robot.home).max() < 1e-3
    assert loop.mode is LoopMode.HOLD and loop.status().saturated_cycles == 0


def test_follows_a_trajectory_and_holds_its_end(loop):
    samples = run(loop, 0.02)
    plan = start_move(loop)
    assert loop.mode is LoopMode.TRACK and loop.status().plan_id is not None
    samples += run(loop, 0.7)
    assert 0.4 < loop.status().progress < 0.55
    with pytest.raises(LoopRefusal, match="must hold its position, but the loop is in TRACK"):
        start_move(loop)
    samples += run(loop, 1.2)
    status = loop.status()
    assert status.mode is LoopMode.HOLD and status.code is LoopCode.OK and status.plan_id is None
    np.testing.assert_allclose(status.reference, plan.end, atol=1e-12)
    np.testing.assert_allclose(loop.arm.truth().q, plan.end, atol=0.01)
    assert np.all(status.tracking_error_max < 0.01) and np.all(np.isinf(status.tracking_bound))
    require_smooth(samples)
    assert [s.sequence for s in samples] == list(range(samples[0].sequence, samples[-1].sequence + 1))
    assert {s.mode for s in samples} == {LoopMode.HOLD, LoopMode.TRACK}


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_the_real_controllers_with_a_hidden_truth_and_a_payload(controller):
    loop = mock_loop(controller=controller, truth="corner", payload="dumbbell_4lb", seed=3)
    loop.connect()
    samples = run(loop, 0.3)
    start_move(loop, bound=0.09)
    samples += run(loop, 0.8)
    loop.brake("test")
    samples += run(loop, 0.5)
    start_move(loop, -0.2, bound=0.09)
    samples += run(loop, 1.6)
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK, loop.status().reason
    require_smooth(samples)
    require_rest(loop, 1.5)


def test_a_start_needs_the_rest_and_the_controller_its_certificate_asks_for(loop):
    """A motion from rest has its tracking bound once the loop has settled, with this controller and this payload."""
    asked = {"rest_before": 1.2}
    with pytest.raises(LoopRefusal, match="held for 0.0. s, but it holds after 1.20 s"):
        start_move(loop, **asked)
    run(loop, 1.2)
    for changes, message in (
        ({"control_law": ControlLaw("robust")}, "for the controller 'robust', in use is 'computed torque"),
        ({"nominal_payload": 1.01 * loop.model.payload}, "nominal payload has parameter 0 ="),
        ({"predecessor": "a" * 64, "takeover_time": 1.5}, "it continues a motion, but the loop is in HOLD"),
    ):
        with pytest.raises(LoopRefusal, match=message):
            start_move(loop, **changes)
    assert loop.mode is LoopMode.HOLD
    start_move(loop, **asked)
    run(loop, 1.6)
    assert loop.mode is LoopMode.HOLD and loop.status().rested < 0.2
    with pytest.raises(LoopRefusal, match="but it holds after 1.20 s"):
        start_move(loop, -0.4, **asked)


# Taking over in motion


def start_chain(loop, at=0.6):
    """A plan that is being followed, one that begins in its state after ``at`` [s], and how the latter begins."""
    first = start_move(loop, 0.5, 1.4)
    start = first.evaluate(at)
    second = BezierTrajectory(*start, start[0] + 0.25, 1.5)
    return first, second, {"predecessor": loop.status().plan_id, "takeover_time": at}


def continue_move(loop, second, takeover, model=None, **changes):
    model_then = model or loop.model
    own = {"nominal_payload": model_then.payload, "box_hash": box_hash(*loop.boxes_of(model))}
    certificate = make_certificate(loop, second, **own, **takeover, **changes)
    loop.execute(second, certificate, model)
    return certificate.plan_id


def test_a_trajectory_takes_over_in_motion_without_a_jump(loop):
    samples = run(loop, 0.02)
    first, second, takeover = start_chain(loop)
    samples += run(loop, 0.4)
    name = continue_move(loop, second, takeover, bound=0.04)
    assert loop.status().plan_id == takeover["predecessor"] and loop.status().next_plan_id == name
    samples += run(loop, 0.2)
    assert (
        loop.status().plan_id == name and loop.status().next_plan_id is None and loop.status().tracking_bound[0] == 0.04
    )
    samples += run(loop, 1.6)
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK
    np.testing.assert_allclose(loop.status().reference, second.end, atol=1e-12)
    require_smooth(samples)
    q_d, v_d, a_d = (np.array([getattr(s, name) for s in samples]) for name in ("q_d", "v_d", "a_d"))
    # The samples are the two plans, cycle by cycle: 0.02 s of rest, 0.6 s of the first, then the second.
    np.testing.assert_allclose(q_d[20 + 599 - 1], first.evaluate(0.599)[0], atol=1e-12)
    np.testing.assert_allclose(q_d[20 + 700 - 1], second.evaluate(0.1)[0], atol=1e-9)
    np.testing.assert_allclose(np.diff(v_d, axis=0), 1e-3 * 0.5 * (a_d[1:] + a_d[:-1]), atol=2e-5)


def test_a_brake_on_the_way_forgets_what_was_to_take_over(loop):
    first, second, takeover = start_chain(loop)
    run(loop, 0.3)
    continue_move(loop, second, takeover)
    run(loop, 0.2)
    loop.brake("test")
    samples = run(loop, 0.8)
    assert loop.mode is LoopMode.HOLD and loop.status().reason == "at rest after braking: test"
    assert np.abs(loop.status().reference - first.start).max() < 0.25
    require_smooth(samples)
    start_move(loop, 0.1)  # and the way is free again


def test_a_take_over_brings_its_model(robot, loop):
    first, second, takeover = start_chain(loop)
    model = loop.model
    tighter = replace(model, payload_box=Box.around(model.payload, 0.5 * model.payload_box.radius))
    tighter = replace(tighter, payload_box=tighter.payload_box.intersect(model.payload_box))
    run(loop, 0.3)
    with pytest.raises(LoopRefusal, match="parameter box"):
        # Certified for the model before.
        loop.execute(second, make_certificate(loop, second, **takeover), tighter)
    continue_move(loop, second, takeover, tighter)
    assert loop.model is model
    run(loop, 0.4)
    assert loop.model is tighter and loop.status().model_box_hash == box_hash(*loop.boxes_of(None))
    run(loop, 1.6)
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK


def test_what_may_not_take_over(loop):
    with pytest.raises(LoopRefusal, match="it continues a motion, but the loop is in HOLD"):
        plan = make_move(loop.status().reference, 0.1)
        loop.execute(plan, make_certificate(loop, plan, predecessor="0" * 64, takeover_time=0.1))
    with pytest.raises(LoopRefusal, match="only a plan that takes over from another brings a model"):
        loop.execute(plan, make_certificate(loop, plan), loop.model)
    first, second, takeover = start_chain(loop)
    run(loop, 0.1)
    model = loop.model
    wider = replace(model, payload_box=Box(model.payload_box.lower - 1.0, model.payload_box.upper))
    jumps = [BezierTrajectory(q, v, a, second.q1, 1.5) for q, v, a in (
        (second.q0 + 1e-6, second.v0, second.a0),
        (second.q0, second.v0 + 1e-5, second.a0),
        (second.q0, second.v0, second.a0 + 1e-3),
    )]  # fmt: skip
    refusals = [
        (second, {"predecessor": "0" * 64}, None, "it continues plan 000000000000, but the arm follows"),
        (second, {"takeover_time": 1.5}, None, "takes over after 1.5 s of a plan of 1.4 s"),
        (
            second,
            {"takeover_time": float("nan")},
            None,
            "the takeover time of its certificate is nan s; it must be from 0 to 120 s",
        ),
        (second, {"takeover_time": 0.5}, None, "would jump by"),
        (jumps[0], {}, None, "position of joint_1 would jump by 1e-06 rad"),
        (jumps[1], {}, None, "velocity of joint_1 would jump by 1e-05 rad/s"),
        (jumps[2], {}, None, "acceleration of joint_1 would jump by 0.001 rad/s"),
        (second, {}, wider, "the interval of payload.m"),
    ]
    for plan, changes, brought, reason in refusals:
        with pytest.raises(LoopRefusal, match=reason):
            continue_move(loop, plan, {**takeover, **changes}, brought)
    name = continue_move(loop, second, takeover)
    with pytest.raises(LoopRefusal, match="already waits to take over"):
        continue_move(loop, second, takeover)
    run(loop, 0.6)
    assert loop.status().plan_id == name
    with pytest.raises(LoopRefusal, match="it continues plan"):
        continue_move(loop, second, takeover)


def test_a_late_plan_is_refused_and_the_present_one_ends_at_rest(loop):
    first, second, takeover = start_chain(loop)
    run(loop, 0.605)
    with pytest.raises(LoopRefusal, match="0.006 s too late to take over; the arm follows the present plan") as refused:
        continue_move(loop, second, takeover)
    assert refused.value.late == pytest.approx(0.006)
    run(loop, 1.0)
    assert loop.mode is LoopMode.HOLD
    np.testing.assert_allclose(loop.status().reference, first.end, atol=1e-12)


def test_lockstep_runs_are_the_same_to_the_last_bit(robot):
    def record(seed):
        loop = build_loop(robot, arm_settings=MujocoSettings(seed=seed))
        loop.connect()
        run_for(loop, 0.25)
        plan = make_move(loop.status().reference, step=0.1, duration=0.5)
        return run_trajectory(loop, plan, make_certificate(loop, plan), settle=0.05)

    first, again, other = record(0), record(0), record(1)
    assert len(first.block) == 551 or len(first.block) == 550
    for name in ("stamps", "q", "v", "tau"):
        np.testing.assert_array_equal(getattr(first.block, name), getattr(again.block, name))
    np.testing.assert_array_equal(first.tau_command, again.tau_command)
    assert not np.array_equal(first.block.tau, other.block.tau)


def test_brake_on_request_stops_on_the_path(loop):
    samples = run(loop, 0.02)
    plan = start_move(loop)
    samples += run(loop, 0.6)
    loop.brake("a person said so")
    loop.brake("again")
    samples += run(loop, 0.6)
    status = loop.status()
    assert status.mode is LoopMode.HOLD and status.code is LoopCode.BRAKE_REQUESTED
    assert status.reason == "at rest after braking: a person said so"
    np.testing.assert_allclose(status.reference, plan.evaluate(0.6 + 0.15)[0], atol=1e-9)
    require_smooth(samples)
    require_rest(loop)
    samples = run(loop, 0.01)
    start_move(loop, -0.1)
    assert loop.status().code is LoopCode.OK
    require_smooth(samples + run(loop, 1.7))


def test_the_brake_time_that_was_checked_is_used(loop):
    start_move(loop, brake_time=0.5)
    run(loop, 0.6)
    loop.brake("test")
    run(loop, 0.45)
    assert loop.mode is LoopMode.BRAKE
    run(loop, 0.06)
    assert loop.mode is LoopMode.HOLD


def test_brake_at_rest_does_nothing(loop):
    loop.brake("test")
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK


# Models


def test_another_model_is_blended_in(robot):
    loop = started(build_loop(robot, controller=RobustController(robot)), 0.25)
    samples = run(loop, 0.01)
    prior = loop.model
    narrower = replace(prior, payload_box=Box.around(0.5 * prior.payload, 1e-3), payload=0.5 * prior.payload)
    assert narrower.payload_box.is_subset_of(prior.payload_box)
    before = loop.status().model_box_hash
    loop.set_model(narrower)
    assert loop.status().model_box_hash != before and loop.status().is_taking_over
    samples += run(loop, 0.5)
    require_smooth(samples)
    with pytest.raises(LoopRefusal, match="still changes to another payload for 2.5"):
        start_move(loop)
    with pytest.raises(LoopRefusal, match="the interval of payload.m, .* not inside .*; ask for a reset"):
        loop.set_model(prior)
    loop.set_model(prior, is_reset=True)
    assert loop.status().model_box_hash == before


def test_bounds_that_shrink_disturb_nothing(loop):
    """The controller takes the same payload for true, so a motion may start at once."""
    prior = loop.model
    loop.set_model(replace(prior, payload_box=Box.around(1.9 * prior.payload, 1e-3)))  # it may lie outside
    assert not loop.status().is_taking_over
    start_move(loop)


def test_no_motion_starts_until_the_controller_uses_the_payload(robot):
    """Whatever happens meanwhile: bounds of motions from rest are for one nominal payload."""
    controller = RobustController(robot)
    loop = started(build_loop(robot, controller=controller), 0.25)
    prior = loop.model
    light = replace(prior, payload=0.6 * prior.payload)
    loop.set_model(light)
    run(loop, 1.5)
    loop.set_model(replace(light, payload_box=Box.around(light.payload, 0.05 * prior.payload_box.radius)))
    with pytest.raises(LoopRefusal, match="still changes to another payload for 1.50 s"):
        start_move(loop)
    run(loop, 1.49)
    assert loop.status().is_taking_over
    run(loop, 0.02)
    assert not loop.status().is_taking_over
    np.testing.assert_array_equal(controller._total, controller.model.total)
    start_move(loop)


def test_no_motion_starts_until_the_payload_of_a_take_over_is_used(robot):
    controller = RobustController(robot)
    loop = started(build_loop(robot, controller=controller), 0.25)
    first, second, takeover = start_chain(loop)
    lighter = replace(loop.model, payload=0.6 * loop.model.payload)
    run(loop, 0.3)
    name = continue_move(loop, second, takeover, lighter)
    run(loop, 0.5)
    assert loop.status().plan_id == name and not loop.status().is_taking_over
    loop.brake("test")
    run(loop, 0.4)
    assert loop.mode is LoopMode.HOLD and loop.status().is_taking_over and loop.status().rested == 0.0
    with pytest.raises(LoopRefusal, match=r"still changes to another payload for 2\.\d+ s"):
        start_move(loop, 0.1)
    run(loop, 2.5)
    np.testing.assert_array_equal(controller._total, controller.model.total)
    assert 0.0 < loop.status().rested < 0.3
    start_move(loop, 0.1)


def test_models_that_are_refused(robot, loop):
    model = loop.model
    with pytest.raises(LoopRefusal, match=r"payload.m = nan is not in \[-"):
        loop.set_model(replace(model, payload=np.r_[np.nan, model.payload[1:]]), is_reset=True)
    for index, value in ((0, 2.6), (0, -2.0), (3, 3.0), (4, -1.0)):
        heavy = np.array(model.payload)
        heavy[index] = value
        with pytest.raises(LoopRefusal, match="is not in .*payload prior of kinova.*push for a load that is not there"):
            loop.set_model(replace(model, payload=heavy), is_reset=True)
    for light in counterweights(robot, (model.theta_box, model.payload_box)):
        replace(model, payload=light).require_fits(robot)
    with pytest.raises(LoopRefusal, match=r"joint_1.m = 99 is not in \["):
        loop.set_model(replace(model, theta=np.r_[99.0, model.theta[1:]]), is_reset=True)
    with pytest.raises(LoopRefusal, match="98 parameters are needed, 5 were given"):
        loop.set_model(replace(model, theta=np.zeros(5)))
    wider = Box(model.theta_box.lower - 1.0, model.theta_box.upper)
    with pytest.raises(LoopRefusal, match=r"the interval of joint_1.m"):
        loop.set_model(replace(model, theta_box=wider))
    start_move(loop)
    with pytest.raises(LoopRefusal, match="the arm moves"):
        loop.set_model(model)


def test_a_certificate_for_the_model_before_is_refused(loop):
    plan = make_move(loop.status().reference)
    certificate = make_certificate(loop, plan)
    model = loop.model
    loop.set_model(replace(model, payload_box=Box.around(model.payload, 1e-4)))
    run(loop, 0.25)
    with pytest.raises(LoopRefusal, match="certify the plan again"):
        loop.execute(plan, certificate)
    with pytest.raises(LoopRefusal, match="the model has changed since it was checked"):
        loop.begin(plan, certificate)
    assert loop.mode is LoopMode.HOLD


# Faults: each ends at rest with its code


def complain(loop):
    read = loop.arm.read
    loop.arm.read = lambda: replace(read(), faults=("motor of joint_2 is hot",))


BRAKING = {
    "silence of the commander": (
        lambda loop: None,
        LoopCode.STALE,
        "no heartbeat of the commanding side for 0.20",
    ),
    "many dropped cycles": (
        lambda loop: loop.arm.inject(InjectedFaults(drop_cycles=6)),
        LoopCode.INVALID_MEASUREMENT,
        "no usable measurement in 3 cycles: no fresh measurement",
    ),
    "an effort that is not a number": (
        lambda loop: loop.arm.inject(InjectedFaults(nan_torques=("joint_3",))),
        LoopCode.INVALID_MEASUREMENT,
        "the torque of joint_3 is nan",
    ),
    "a complaint of the arm": (complain, LoopCode.HARDWARE, "the arm reports: motor of joint_2 is hot"),
}


@pytest.mark.parametrize("name", BRAKING)
def test_motions_are_braked_on_their_path(loop, name):
    act, code, words = BRAKING[name]
    start_move(loop)
    samples = run(loop, 0.6)
    act(loop)
    samples += run(loop, 0.6, beat=not name.startswith("silence"))
    assert loop.mode is LoopMode.HOLD and loop.status().code is code and words in loop.status().reason
    require_smooth(samples)
    require_rest(loop)


def test_silence_while_holding_is_allowed(loop):
    run(loop, 1.0, beat=False)
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK


def test_a_late_cycle_brakes(loop):
    start_move(loop)
    run(loop, 0.5)
    loop.report_late(0.005)
    assert loop.mode is LoopMode.TRACK
    loop.report_late(0.15)
    assert loop.status().code is LoopCode.MISSED_DEADLINES and "150.0 ms late" in loop.status().reason
    require_rest(loop)
    assert loop.status().missed_deadlines == 2


def test_a_few_dropped_cycles_are_bridged(loop):
    samples = run(loop, 0.01)
    start_move(loop)
    for _ in range(20):
        samples += run(loop, 0.05)
        loop.arm.inject(InjectedFaults(drop_cycles=2))
    samples += run(loop, 0.6)
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK
    assert loop.status().invalid_cycles == 40 == sum(not s.ok for s in samples)
    require_smooth(samples)


FATAL = {
    "no feedback": (InjectedFaults(drop_cycles=10**6), LoopCode.INVALID_MEASUREMENT, "in 10 cycles: no fresh"),
    "position not a number": (
        InjectedFaults(nan_positions=("joint_2",)),
        LoopCode.INVALID_MEASUREMENT,
        "the position of joint_2 is nan",
    ),
    "stuck encoder": (
        InjectedFaults(stuck_encoders=("joint_4",)),
        LoopCode.INVALID_MEASUREMENT,
        "the position of joint_4 has not changed while the reference moved",
    ),
    "power loss": (InjectedFaults(power_loss=True), LoopCode.HARDWARE, "power is off"),
}


@pytest.mark.parametrize("name", FATAL)
def test_the_arm_is_given_up_when_it_cannot_be_controlled(loop, name):
    faults, code, message = FATAL[name]
    start_move(loop)
    run(loop, 0.6)
    assert np.abs(loop.arm.truth().v).max() > 0.3
    loop.arm.inject(faults)
    q_fault = loop.arm.truth().q
    samples = run(loop, 1.0)
    status = loop.status()
    assert status.mode is LoopMode.FAULT and status.code is code and message in status.reason
    assert loop.is_handed_back and loop.is_at_rest
    assert not any(s.ok for s in samples[50:])
    require_rest(loop)
    assert np.abs(loop.arm.truth().q - q_fault).max() < 0.1
    with pytest.raises(LoopRefusal, match="the loop is in FAULT"):
        start_move(loop)
    # and back again
    loop.arm.inject(InjectedFaults())
    loop.connect()
    run(loop, 0.3)
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK
    start_move(loop, -0.1)
    run(loop, 1.6)
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.OK


def test_no_motion_starts_until_an_effort_is_a_number_again(loop):
    loop.arm.inject(InjectedFaults(nan_torques=("joint_3",)))
    run(loop, 0.01)
    with pytest.raises(LoopRefusal, match="the torque of joint_3 is nan"):
        start_move(loop)
    loop.arm.inject(InjectedFaults())
    run(loop, 0.01)
    start_move(loop, -0.1)


@pytest.mark.parametrize("gain", [0.93, 1.07, -1.0])
def test_a_torque_sensor_that_is_wrong_by_more_than_its_error_brakes_and_refuses(robot, gain):
    loop = started(mock_loop(truth="corner", payload="dumbbell_4lb", noise="uniform", seed=5), 0.3)
    start_move(loop, bound=0.09)
    run(loop, 0.3)
    read = loop.arm.read
    loop.arm.read = lambda: replace(state := read(), tau=gain * state.tau)
    run(loop, 1.6)  # torques that vibrate are compared in the mean over half a second
    assert loop.mode is LoopMode.HOLD and loop.status().code is LoopCode.INVALID_MEASUREMENT
    assert not any(sample.ok for sample in run(loop, 0.1))  # nobody shall learn from it
    assert re.search(r"torque of joint_\d is .* commanded were .* (apart for 50 ms|in the mean)", loop.status().reason)
    with pytest.raises(LoopRefusal, match="commanded were"):
        start_move(loop, -0.1, bound=0.09)
    at_rest = mock_loop(truth="corner", payload="dumbbell_4lb", noise="uniform", seed=5)
    at_rest.connect()
    read_at_rest = at_rest.arm.read
    at_rest.arm.read = lambda: replace(state := read_at_rest(), tau=gain * state.tau)
    run(at_rest, 1.1)
    assert "holding position; no motion may start: the torque of" in at_rest.status().reason
    loop.arm.read = read
    run(loop, 1.6)
    start_move(loop, -0.1, bound=0.09)


def test_a_motor_that_does_not_obey_is_not_asked_for_more_and_more(robot):
    loop = started(mock_loop(noise="none"), 1.0)
    # Friction holds the arm, a little away from where it should be, whatever is commanded.
    read, held = loop.arm.read, loop.arm.read()
    q = held.q + 2e-3
    loop.arm.read = lambda: replace(read(), q=q, v=np.zeros(robot.n), tau=held.tau + 0.5)
    samples = run(loop, 3.0)
    assert loop.mode is LoopMode.HOLD and "no motion may start: the torque of joint_" in loop.status().reason
    assert loop.status().rested == 0.0
    commanded = np.array([sample.tau_command for sample in samples[100:]])
    assert np.ptp(commanded, axis=0).max() < 1e-9
    loop.arm.read = lambda: replace(read(), q=q, v=np.zeros(robot.n), tau=loop._output.last)
    commanded = np.array([sample.tau_command for sample in run(loop, 2.0)])
    assert "no motion" not in loop.status().reason and loop.status().rested > 0.5
    assert np.ptp(commanded, axis=0).min() > 0.01  # it learns again


@pytest.mark.parametrize("delay", [40, 100])
def test_late_commands_end_at_rest(loop, delay):
    start_move(loop)
    run(loop, 0.4)
    loop.arm.inject(InjectedFaults(command_delay=delay))
    run(loop, 2.5)
    causes = [t.code for t in loop.status().transitions if t.code is not LoopCode.OK]
    assert causes[0] in (LoopCode.INVALID_MEASUREMENT, LoopCode.TRACKING_ERROR, LoopCode.LIMIT)
    assert loop.mode is LoopMode.FAULT
    require_rest(loop, 1.0)


def test_leaving_the_certified_tube_brakes(loop):
    start_move(loop, bound=0.004)
    samples = run(loop, 0.5)
    loop.arm.set_payload(None)
    samples += run(loop, 0.8)
    status = loop.status()
    assert status.mode is LoopMode.HOLD and status.code is LoopCode.TRACKING_ERROR
    assert "rad away from its path (certified bound 0.0040 rad)" in status.reason
    assert status.tracking_error_max.max() > 0.004
    require_smooth(samples)
    require_rest(loop)


def test_an_arm_that_does_not_follow_at_all_is_given_up(robot):
    loop = started(build_loop(robot, controller=ComputedTorque(robot, stiffness=5.0, damping=5.0)), 0.3)
    loop.arm.set_payload(3.0 * robot.payload_prior.nominal)
    run(loop, 1.5)
    assert loop.mode is LoopMode.FAULT and loop.status().code is LoopCode.TRACKING_ERROR
    assert "away from its reference (allowed 0.1 rad)" in loop.status().reason
    require_rest(loop)


def test_overspeed_is_given_up(robot):
    settings = LoopSettings(following_error=1.0)
    loop = started(build_loop(robot, settings=settings), 0.3)
    loop._controller.spoil = lambda tau: np.where(np.arange(7) == 4, 9.0, tau)
    run(loop, 2.0)
    assert loop.mode is LoopMode.FAULT and loop.status().code is LoopCode.LIMIT
    assert "joint_5 moves with" in loop.status().reason
    require_rest(loop)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda tau: np.where(np.arange(7) == 4, np.nan, tau), "not one finite number per joint"),
        (lambda tau: tau[:6], "not one finite number per joint|could not be broadcast"),
        (lambda tau: 1 / 0, "the controller failed: ZeroDivisionError"),
    ],
)
def test_a_broken_controller_never_reaches_the_arm(loop, spoil, message):
    start_move(loop)
    run(loop, 0.6)
    loop._controller.spoil = spoil
    samples = run(loop, 1.0)
    status = loop.status()
    assert status.mode is LoopMode.FAULT and status.code is LoopCode.INTERNAL
    assert re.search(message, status.reason)
    sent = np.array([s.tau_command for s in samples])
    assert np.isfinite(sent[:10]).all()
    require_rest(loop)


def test_torque_is_saturated_and_counted(robot, loop):
    start_move(loop)
    run(loop, 0.1)
    loop._controller.spoil = lambda tau: tau + 1e3
    samples = run(loop, 0.005)
    assert loop.status().saturated_cycles == 5
    for sample in samples:
        np.testing.assert_array_equal(sample.tau_command, robot.limits.tau_max)


# Life of the connection


def test_release_and_connect_again(loop):
    with pytest.raises(LoopRefusal, match="the loop is in HOLD"):
        loop.connect()
    loop.release("done")
    assert loop.mode is LoopMode.IDLE and loop.step() is None and loop.is_at_rest
    with pytest.raises(LoopRefusal, match="the loop is in IDLE"):
        start_move(loop)
    loop.connect()
    run(loop, 0.3)
    assert loop.mode is LoopMode.HOLD


def test_an_arm_without_usable_measurement_is_not_taken_over(robot):
    loop = build_loop(robot)
    loop.arm.inject(InjectedFaults(nan_positions=("joint_1",)))
    with pytest.raises(ArmError, match="no usable measurement after connecting: the position of joint_1 is nan"):
        loop.connect()
    assert loop.mode is LoopMode.IDLE


def test_transitions_tell_the_story(loop):
    start_move(loop)
    run(loop, 0.3)
    loop.brake("enough")
    run(loop, 0.5)
    story = [(t.source, t.target, t.code) for t in loop.status().transitions]
    assert story == [
        (LoopMode.IDLE, LoopMode.HOLD, LoopCode.OK),
        (LoopMode.HOLD, LoopMode.TRACK, LoopCode.OK),
        (LoopMode.TRACK, LoopMode.BRAKE, LoopCode.BRAKE_REQUESTED),
        (LoopMode.BRAKE, LoopMode.HOLD, LoopCode.BRAKE_REQUESTED),
    ]
    assert loop.status().transitions[-1].stamp_ns > 0
