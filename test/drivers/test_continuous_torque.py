"""The continuous torque limits in the loop: what was, what a plan adds, and how long a posture may be held."""

import re

import numpy as np
import pytest
from driver_doubles import build_loop, make_certificate, make_move, run, started

from sysid_ros.core.certification.held_feedback import WINDOW
from sysid_ros.drivers.loop_types import LoopMode, LoopRefusal, RefusalCode

STRETCHED = np.array([0.0, 0.1, 0.0, 1.5, 0.0, 0.0, 0.0])
DUMBBELL = np.array([3.6, 0.0, 0.0, -3.6 * 0.26, 0.28, 0.0, 0.28, 0.0, 0.0, 0.01])


def test_a_plan_that_is_too_much_after_what_was_is_refused_until_the_arm_has_rested(robot):
    """Squares of 20 Nm for 1.5 s: 600 Nm^2 s. A minute allows 4860, and 8.7 Nm for the rest of it takes 4428."""
    loop = started(build_loop(robot), 0.5)
    move = make_move(loop.status().reference, step=0.1)
    squares = np.zeros((4, 7))
    squares[:3, 4] = 400.0
    certificate = make_certificate(loop, move, torque_squares=squares)
    held = np.zeros(7)
    held[4] = 8.7
    loop._torques = type(loop._torques)(held, loop.arm.period)
    with pytest.raises(
        LoopRefusal, match=r"joint_5 would reach 9\.[0-9]* Nm .* continuous limit is 9 Nm: rest"
    ) as refusal:
        loop.execute(move, certificate)
    assert refusal.value.code is RefusalCode.NOT_READY and loop.mode is LoopMode.HOLD
    for _ in range(15000):
        loop._torques.add(np.zeros(7))
    loop.execute(move, certificate)
    assert loop.mode is LoopMode.TRACK


def test_the_rest_of_the_present_plan_counts_before_a_plan_that_takes_over(robot):
    loop = started(build_loop(robot), 0.5)
    first = make_move(loop.status().reference, step=0.1, duration=3.0)
    squares = np.zeros((7, 7))
    squares[:6, 5] = 841.0  # 29 Nm: 2.5 s of it and 3.5 s more are 5046 of 4860 Nm^2 s, without them it is not too much
    before = make_certificate(loop, first, torque_squares=squares)
    loop.execute(first, before)
    run(loop, 0.1)
    second = first.__class__(*first.evaluate(2.5), first.q1, 3.5)
    given = {"predecessor": before.plan_id, "takeover_time": 2.5, "torque_squares": squares}
    with pytest.raises(LoopRefusal, match="joint_6 would reach"):
        loop.execute(second, make_certificate(loop, second, **given))
    loop.execute(second, make_certificate(loop, second, **given | {"torque_squares": 0.8 * squares}))


def test_the_record_is_of_the_torques_that_were_sent(robot):
    loop = build_loop(robot)
    loop.connect()
    sent = np.array([sample.tau_command for sample in run(loop, 1.0)])
    load = loop._torques.load
    np.testing.assert_allclose(load.squares[-2:].mean(axis=0), np.mean(sent**2, axis=0), rtol=1e-9)


def test_how_long_a_posture_may_be_held_is_said(robot):
    loop = build_loop(robot, payload=DUMBBELL, start=STRETCHED)
    assert "may be held" not in loop.status().reason
    loop.connect()
    run(loop, 2.0)
    found = re.search(
        r"may be held for ([0-9]+) s more: joint_6 needs ([0-9.]+) Nm.*move the arm", loop.status().reason
    )
    assert found is not None, loop.status().reason
    seconds, torque = int(found[1]), float(found[2])
    assert 9.0 < torque < 29.4 and seconds == 0, "it counts as held for a minute when it is taken over"
    move = make_move(loop.status().reference, step=0.1)
    loop.execute(
        move,
        make_certificate(loop, move, torque_squares=np.tile(torque**2 * np.eye(7)[5], (4, 1)) * [[1], [1], [1], [0]]),
    )
    assert loop.mode is LoopMode.TRACK, "it may leave in any case"
    run(loop, 2.5)
    loop._torques = type(loop._torques)(np.zeros(7), loop.arm.period)
    found = re.search(r"held for ([0-9]+) s more: joint_6 needs ([0-9.]+) Nm", loop.status().reason)
    seconds, torque = int(found[1]), float(found[2])
    assert seconds == pytest.approx(WINDOW * 81.0 / torque**2, abs=1.5)


def test_one_torque_beyond_the_limit_excuses_nothing_at_the_end_of_a_certified_plan(robot):
    """There the arm may be held for ever in the mean; elsewhere it may leave a posture that it cannot keep."""
    loop = started(build_loop(robot), 0.5)
    move = make_move(loop.status().reference, step=0.1, duration=1.0)
    loop.execute(move, make_certificate(loop, move))
    run(loop, 3.0)
    assert loop.mode is LoopMode.HOLD and loop._may_stay
    held, squares = np.zeros(7), np.zeros((4, 7))
    held[4], squares[:3, 4] = 8.7, 400.0
    loop._torques = type(loop._torques)(held, loop.arm.period)
    loop._output.last = loop._output.last.copy()
    loop._output.last[4] = 9.01
    back = make_move(loop.status().reference, step=-0.1)
    with pytest.raises(LoopRefusal, match="joint_5 would reach"):
        loop.execute(back, make_certificate(loop, back, torque_squares=squares))
    assert "may be held" not in loop.status().reason
    loop._may_stay = False
    loop.execute(back, make_certificate(loop, back, torque_squares=squares))
