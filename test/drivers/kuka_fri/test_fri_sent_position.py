"""The position that goes with torques: where it lies, that it never jumps, what it does to friction compensation."""

from dataclasses import replace

import numpy as np
import pytest
from driver_doubles import start_move
from fri_bench import PERIOD, ROBOT, make_controller, run
from fri_memory import Memory, connected

from sysid_ros.drivers.kuka_fri.arm import SentPosition
from sysid_ros.drivers.kuka_fri.settings import FriSettings, PositionSent
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.emulators.fri.inner_loop import InnerLoopSettings

STEP = 1.5 * ROBOT.limits.v_max * PERIOD
OFFSET = FriSettings(period=PERIOD, position=PositionSent.OFFSET)


def follow(path, settings=OFFSET, limits=ROBOT.limits):
    sent = SentPosition(limits, settings)
    sent.restart(path[0])
    positions = np.array([path[0], *(sent.follow(q) for q in path)])
    steps = np.abs(np.diff(positions, axis=0))
    assert (steps <= 1.5 * limits.v_max * settings.period + 1e-12).all()
    return positions[1:]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PositionSent.MEASURED, PositionSent.OFFSET])
def test_friction_is_compensated_as_the_choice_says_in_every_joint(kind):
    """Four joints move through zero, and rest there at first. The measured position that is sent is a cycle old."""
    controller = make_controller(inner=InnerLoopSettings(friction_compensation=1.0), payload="0.6")
    arm, rows = controller.arm, []
    inner = controller.inner._torque

    def watch(q, v, overlay, applied):
        torque = inner(q, v, overlay, applied)
        if overlay.is_compliant:
            rows.append((q, v, torque - inner(q, v, replace(overlay, q=q), applied)))
        return torque

    loop = connected(Memory(controller), position=kind)
    run(loop, 0.2)  # until the position sent is where it is to be
    controller.inner._torque = watch
    for direction in (0.0, 0.3, -0.3):
        start_move(loop, direction)
        run(loop, 0.9)
    assert loop.mode is LoopMode.HOLD
    q, v, added = (np.array(column) for column in zip(*rows, strict=True))
    assert (np.abs(np.ptp(np.sign(q[:, ::2]), axis=0)) == 2.0).all() and (ROBOT.home[::2] == 0.0).all()
    friction = arm.friction[:, 0] * np.tanh(v / 0.02) + arm.friction[:, 1] * v
    assert (np.abs(friction).max(axis=0) > 0.1).all()
    if kind is PositionSent.OFFSET:
        np.testing.assert_allclose(added, friction, atol=1e-9)
        return
    is_slow, is_fast = np.abs(v) < 0.02, np.abs(v) > 0.1
    assert is_slow.sum() > 1000 and is_fast.sum() > 1000
    np.testing.assert_array_equal(added[is_slow], 0.0)
    np.testing.assert_allclose(added[is_fast], friction[is_fast], atol=1e-9)


def test_the_offset_is_kept_at_zero_and_on_both_sides_of_it():
    rng = np.random.default_rng(1)
    path = 0.02 * np.sin(np.linspace(0.0, 20.0, 2000))[:, None] * np.ones(7) + 1e-4 * rng.normal(size=(2000, 7))
    distance = follow(path)[100:] - path[100:]
    assert np.abs(np.abs(distance) - 0.1).max() < 1e-12
    assert (np.ptp(np.sign(distance), axis=0) == 0.0).all()  # no chatter


def test_the_side_changes_far_from_the_middle_and_the_limits_hold():
    """Over the whole range and back, with noise on the measured positions, at the speed limit."""
    q_lower, q_upper = ROBOT.limits.q_lower, ROBOT.limits.q_upper
    count = round(float(((q_upper - q_lower) / ROBOT.limits.v_max).max() / PERIOD)) + 1
    shape = np.concatenate([np.linspace(0, 1, count), np.linspace(1, 0, count)])[:, None]
    noise = 1e-5 * np.random.default_rng(2).normal(size=(2 * count, 7))
    path = np.clip(q_lower + shape * (q_upper - q_lower) + noise, q_lower, q_upper)
    sent = follow(path)
    assert (sent >= q_lower).all() and (sent <= q_upper).all()
    distance = (sent - path)[100:]
    assert (np.abs(np.diff(np.sign(distance), axis=0)).sum(axis=0) == 4.0).all()  # once on each way
    assert ((np.abs(distance) < 1e-4).sum(axis=0) <= 2).all()  # the measured position is passed within a cycle
    away = np.abs(path[100:])[np.abs(distance).min(axis=1) < 0.09]
    assert (away >= 0.45 * q_upper[:1].min()).any() and (np.abs(distance) <= 0.1 + 1e-9).all()


@pytest.mark.parametrize("width", [0.05, 0.3])
def test_narrow_and_lopsided_limits_hold_too(width):
    limits = replace(ROBOT.limits, q_lower=np.full(7, 0.7), q_upper=np.full(7, 0.7 + width))
    path = 0.7 + 0.5 * width * (1.0 - np.cos(np.linspace(0.0, 30.0, 4000)))[:, None] * np.ones(7)
    sent = follow(path, limits=limits)
    assert (sent >= 0.7 - 1e-12).all() and (sent <= 0.7 + width + 1e-12).all()
    assert np.median(np.abs(sent - path)) == pytest.approx(min(0.1, 0.25 * width), abs=1e-3)


def test_joints_without_limits_keep_their_side():
    limits = replace(ROBOT.limits, q_lower=np.full(7, -np.inf), q_upper=np.full(7, np.inf))
    path = np.linspace(-10.0, 10.0, 10_000)[:, None] * np.ones(7)
    assert np.abs(follow(path, limits=limits) - path - 0.1)[200:].max() < 1e-9


def test_a_measured_position_that_jumps_is_followed_at_the_speed_limit():
    path = np.zeros((400, 7))
    path[200:] = 1.0
    sent = follow(path, replace(OFFSET, position=PositionSent.MEASURED))
    np.testing.assert_allclose(sent[205], 6 * STEP)
    np.testing.assert_array_equal(sent[:200], 0.0)
