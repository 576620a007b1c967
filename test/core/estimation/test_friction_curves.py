"""Friction by speed with guaranteed intervals: the truth is inside for any law; laws that are not simple are found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation import friction_curves
from sysid_ros.core.estimation.calibration import (
    CalibrationCancelled,
    CalibrationRecord,
    LoadedRecording,
    calibrate_arm,
    empty_hand,
)
from sysid_ros.core.estimation.friction_curves import NoSlowMotion, measure_friction
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import RowStream
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters

PAUSE = 0.3


class Sweep:
    """All joints at a constant speed there and back, for each speed; half a second of rest before each."""

    def __init__(self, robot, speeds=(0.05, 0.1), way=0.8, ramp=0.1):
        self.home, self.n = np.array(robot.home), robot.n
        self.speeds, self.way, self.ramp = speeds, way, ramp

    @property
    def duration(self):
        return len(self.speeds) * (PAUSE + 2.0 * self.way) + PAUSE

    def __call__(self, t):
        t = np.asarray(t, dtype=float)
        v, a, turn = np.zeros_like(t), np.zeros_like(t), np.zeros_like(t)
        begin, w = PAUSE, np.pi / self.ramp
        for speed in self.speeds:
            for sign in (1.0, -1.0):
                at = np.clip(t - begin, 0.0, self.way)
                into, out = np.clip(at, 0.0, self.ramp), np.clip(at - self.way + self.ramp, 0.0, self.ramp)
                # A speed that rises and falls as a cosine, and its integral.
                v += sign * speed * 0.5 * (np.cos(w * out) - np.cos(w * into))
                a += sign * speed * 0.5 * w * (np.sin(w * into) - np.sin(w * out))
                path = 0.5 * into - np.sin(w * into) / (2.0 * w) + np.clip(at - self.ramp, 0.0, None)
                turn += sign * speed * (path - (0.5 * out - np.sin(w * out) / (2.0 * w)))
                begin += self.way
            begin += PAUSE
        spread = np.ones(self.n)
        return self.home + turn[..., None] * spread, v[..., None] * spread, a[..., None] * spread


def recorded(tools, robot, theta, rng, adversarial=False, extra=lambda v: 0.0, sweep=None):
    """What sensors make of a sweep; ``extra`` is friction beyond the law, by the speed."""
    sweep = sweep or Sweep(robot)
    exact = tools.record(robot, theta, np.zeros(10), sweep, sweep.duration)
    before = np.concatenate([exact.v[:1], exact.v[:-1]])
    tau = exact.tau + 0.5 * (extra(exact.v) + extra(before))
    return LoadedRecording("sweep", [tools.measure(robot, exact.q, exact.v, tau, rng, adversarial)], empty_hand())


def assert_holds(curve, friction, offset):
    """friction: at the speeds of the curve, forwards and backwards, (B,) each."""
    forwards, backwards = (np.broadcast_to(part, curve.speeds.shape) for part in friction)
    half, mean = 0.5 * (forwards + backwards), 0.5 * (forwards - backwards) + offset
    for box, truth in (
        (curve.forwards, forwards + offset),
        (curve.backwards, offset - backwards),
        (curve.friction, half),
        (curve.offset, mean),
        (curve.rise, half[1:] - half[0]),
        (curve.shift, mean[1:] - mean[0]),
    ):
        assert box.contains(truth), (curve.joint, box, truth)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_truth_is_inside(robot, tools, seed):
    """Arms of the box, at its corners for odd seeds, with errors that last; a joint at rest is held by up to F_c."""
    rng, is_worst = np.random.default_rng(seed), seed % 2 == 1
    wide = dataclasses.replace(robot, theta_box=Box.around(robot.theta_nominal, 3.0 * robot.theta_box.radius))
    theta = sample_parameters(wide, rng, corner=is_worst)
    shares: list[float] = []
    recording = recorded(tools, wide, theta, rng, is_worst)
    curves = measure_friction(wide, [recording], on_progress=lambda share, _: shares.append(share))
    assert shares == sorted(shares) and shares[0] < 0.5 < 0.9 < shares[-1] <= 1.0
    assert [curve.joint for curve in curves] == list(robot.joint_names)
    for curve, (coulomb, viscous, _, offset) in zip(curves, robot.friction(theta), strict=True):
        assert curve.speeds.size >= 2 and np.all(curve.windows >= 2)
        law = coulomb + viscous * curve.speeds
        assert_holds(curve, (law, law), offset)
        assert not curve.falls_with_speed and not curve.is_asymmetric, "the law is the simple one"
        assert curve.rests.lower.size >= 2
        assert np.all(curve.rests.lower <= coulomb + offset) and np.all(offset - coulomb <= curve.rests.upper)


def test_intervals_are_narrow_where_gravity_cancels(robot, tools):
    """In differences of both directions the uncertain bodies cancel; in sums, as the offset is one, they do not."""
    theta = sample_parameters(robot, np.random.default_rng(1))
    precise = tools.with_sensors(robot, effort_relative_error=0.001)
    sweep = Sweep(precise, (0.05,), way=0.5)
    curve = measure_friction(precise, [recorded(tools, precise, theta, np.random.default_rng(2), sweep=sweep)])[1]
    assert curve.friction.radius.max() < 0.1 < 5.0 * curve.friction.radius.max() < curve.offset.radius.min()


@pytest.mark.slow
def test_laws_that_are_not_simple_are_proven_and_hold(robot, tools):
    theta, rng = sample_parameters(robot, np.random.default_rng(3)), np.random.default_rng(4)
    precise = tools.with_sensors(robot, effort_relative_error=0.002, position_resolution=2e-5)

    def stribeck(v):
        return 1.5 * np.tanh(v / 1e-3) * np.exp(-np.abs(v) / 0.05)

    def asymmetry(v):
        return 4.0 * np.abs(v)

    settings = EstimatorSettings(stribeck_friction=3.0, stribeck_speed=0.05, friction_asymmetry=5.0)
    sweep = Sweep(robot, (0.05, 0.15))
    one = recorded(tools, precise, theta, rng, extra=stribeck, sweep=sweep)
    curve = measure_friction(precise, [one], settings)[0]
    coulomb, viscous, _, offset = robot.friction(theta)[0]
    law = coulomb + viscous * curve.speeds + stribeck(curve.speeds)
    assert_holds(curve, (law, law), offset)
    assert curve.falls_with_speed and not curve.is_asymmetric
    curve = measure_friction(precise, [recorded(tools, precise, theta, rng, extra=asymmetry, sweep=sweep)], settings)[0]
    law = coulomb + viscous * curve.speeds
    assert_holds(curve, (law + asymmetry(curve.speeds), law - asymmetry(curve.speeds)), offset)
    assert curve.is_asymmetric and not curve.falls_with_speed


def rested(block, seconds):
    """A recording that begins with so long a rest at its first posture, where nothing changes."""
    period = 1_000_000
    count = round(1e9 * seconds / period)
    first = SampleBlock(
        block.stamps[0] + period * np.arange(count),
        np.arange(count),
        *(np.repeat(values[1:2], count, axis=0) for values in (block.q, block.v, block.tau)),
    )
    later = dataclasses.replace(block, stamps=block.stamps + count * period, sequence=block.sequence + count)
    return SampleBlock.concatenate([first, later])


def test_long_rests_cost_no_rows_and_little_computing(robot, tools, monkeypatch):
    """Windows that say what others say are neither built nor in the programmes; the curves stay as they are."""
    windows, programmes = [0], []

    def build_rows(stream, window, original=RowStream.build_rows):
        windows[0] += 1
        return original(stream, window)

    def bound(problem, *arguments, original=friction_curves.bound_by_membership):
        programmes.append(len(problem.r))
        return original(problem, *arguments)

    monkeypatch.setattr(RowStream, "build_rows", build_rows)
    monkeypatch.setattr(friction_curves, "bound_by_membership", bound)
    theta = sample_parameters(robot, np.random.default_rng(7))
    (block,) = recorded(tools, robot, theta, np.random.default_rng(8), sweep=Sweep(robot, (0.06,), way=0.5)).blocks
    found = []
    for seconds in (0.0, 20.0):
        windows[0], before = 0, len(programmes)
        curves = measure_friction(robot, [LoadedRecording("sweep", [rested(block, seconds)], empty_hand())])
        found.append((curves, windows[0], programmes[before:]))
    (short, few, small), (long, more, large) = found
    assert more - few <= 25 and large == small
    for one, other in zip(short, long, strict=True):
        assert one.rests.lower.size == other.rests.lower.size >= 2
        for name in ("forwards", "backwards", "friction", "offset"):
            assert np.allclose(getattr(one, name).radius, getattr(other, name).radius, rtol=0.03)
        coulomb, _, _, offset = robot.friction(theta)[robot.joint_names.index(one.joint)]
        assert np.all(other.rests.lower <= coulomb + offset) and np.all(offset - coulomb <= other.rests.upper)


def test_friction_behind_sensors_on_the_link_side(tools):
    lbr, rng = tools.load_steady("kuka_lbr_med7"), np.random.default_rng(0)
    theta = sample_parameters(lbr, rng)
    behind = lbr.friction(theta)
    behind[:, :3] *= [0.5, 0.5, 0.0]
    seen = tools.with_sensors(lbr, effort_meaning=EffortMeaning.MOTOR_SIDE)
    recording = recorded(
        tools, seen, np.concatenate([theta[:70], behind.ravel()]), rng, sweep=Sweep(lbr, (0.06,), way=0.5)
    )
    for curve, (coulomb, viscous, _, offset) in zip(measure_friction(lbr, [recording]), behind, strict=True):
        law = coulomb + viscous * curve.speeds
        assert curve.speeds.size
        assert_holds(curve, (law, law), offset)


@pytest.mark.slow
def test_a_sweep_narrows_friction_in_a_calibration(robot, tools):
    theta, rng = sample_parameters(robot, np.random.default_rng(5)), np.random.default_rng(6)
    exact = tools.record(robot, theta, np.zeros(10), tools.FourierMotion(robot, 21), 1.0)
    fast = LoadedRecording("fast", [tools.measure(robot, exact.q, exact.v, exact.tau, rng)], empty_hand())
    slow, widths = recorded(tools, robot, theta, rng, sweep=Sweep(robot, (0.05,))), []
    for recordings in ([fast], [fast, slow]):
        found = calibrate_arm(robot, recordings, CalibrationRecord(serial="A1", date="2026-11-22"))
        assert found.box.contains(theta)
        widths.append(robot.friction(found.box.width))
    assert np.all(widths[1] <= 1.01 * widths[0]) and np.any(widths[1] < 0.95 * widths[0])


def test_what_says_nothing_is_refused_and_work_can_be_cancelled(robot, tools):
    with pytest.raises(SysidError, match="no recording to measure friction from"):
        measure_friction(robot, [])
    exact = tools.record(robot, robot.theta_nominal, np.zeros(10), tools.FourierMotion(robot, 21), 0.4)
    fast = LoadedRecording("fast", [exact], empty_hand())
    with pytest.raises(NoSlowMotion, match="record a slow motion there and back"):
        measure_friction(robot, [fast])
    with pytest.raises(CalibrationCancelled):
        measure_friction(robot, [fast], is_cancelled=lambda: True)
