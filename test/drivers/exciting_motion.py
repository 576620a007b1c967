"""An exciting motion in lock-step through the client of a real arm, and what the estimator makes of its samples."""

from dataclasses import replace

import numpy as np
from driver_doubles import make_certificate

from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.trajectories.families import FourierTrajectory, rest_projection
from sysid_ros.drivers.channel import collect_samples
from sysid_ros.drivers.loop_types import LoopMode

DURATION = 2.4
"""Of the motion [s]."""
_HARMONICS, _SHARE = 3, 0.85


def exciting_trajectory(robot, start, seed=2):
    """Sines of all joints at random, as fast as accelerations and speeds allow; from rest to rest."""
    rng = np.random.default_rng(seed)
    sine, cosine = (rng.normal(size=(robot.n, _HARMONICS - 1)) @ basis.T for basis in rest_projection(_HARMONICS))
    unit = FourierTrajectory(start, sine, cosine, 1.0 / DURATION, DURATION)
    limits, scale = robot.limits, np.full(robot.n, np.inf)
    for extrema, limit in ((unit.velocity_extrema(), limits.v_max), (unit.acceleration_extrema(), limits.a_max)):
        scale = np.minimum(scale, limit / np.abs(extrema).max(axis=0))
    scale = _SHARE * scale[:, None]
    return FourierTrajectory(start, scale * sine, scale * cosine, 1.0 / DURATION, DURATION)


def move(loop):
    """Rests for a moment, then follows the exciting motion; returns the samples of both."""
    samples = []

    def step(cycles):
        for _ in range(cycles):
            loop.heartbeat()
            samples.append(loop.step())

    step(round(0.35 / loop.arm.period))
    start = loop.status().reference
    plan = exciting_trajectory(loop.robot, start)
    loop.execute(plan, make_certificate(loop, plan, bound=0.09))
    step(round((DURATION + 0.1) / loop.arm.period))
    status = loop.status()
    assert loop.mode is LoopMode.HOLD and status.reason == "trajectory done", status.reason
    assert all(sample is not None and sample.ok for sample in samples)
    return collect_samples(samples, loop.robot.n).block


def identify(robot, block):
    """The streaming estimator with the error budget of the robot file."""
    estimator = StreamingEstimator(robot)
    notices = estimator.add(block)
    return estimator.estimate(), notices


def expect_truth_in_narrow_bounds(robot, block, truth, narrowed):
    """The true payload lies in the bounds, which are so many times narrower than the prior.

    Args:
        robot: The robot.
        block: Samples.
        truth: True payload, (10,).
        narrowed: At least, for the mass, first moments and inertias.
    """
    estimate, notices = identify(robot, block)
    assert estimate.is_consistent and not notices, (estimate.alarm, notices)
    assert ((estimate.lower <= truth) & (truth <= estimate.upper)).all(), (estimate.lower, truth, estimate.upper)
    prior = robot.payload_prior.box
    ratio = 2.0 * prior.radius / (estimate.upper - estimate.lower)
    assert (ratio >= 1.0 - 1e-9).all()
    assert ratio[0] > narrowed[0] and ratio[1:4].min() > narrowed[1] and ratio[4:].max() > narrowed[2], ratio


def expect_alarm(robot, block, **changes):
    """Samples that are changed contradict every payload of the prior."""
    estimate, _ = identify(robot, replace(block, **changes))
    assert not estimate.is_consistent and estimate.alarm
