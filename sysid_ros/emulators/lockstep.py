"""Run a loop without a clock, as fast as it goes: for tests, studies and offline use."""

from __future__ import annotations

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.channel import LoopSamples, collect_samples
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopMode, LoopSample


def run_for(loop: ControlLoop, duration: float) -> LoopSamples:
    """Run a connected loop, with a heartbeat in every cycle.

    Args:
        loop: The loop.
        duration: Simulated time [s].

    Returns:
        The usable samples.
    """
    return collect_samples(_step(loop, round(duration / loop.arm.period)), loop.robot.n)


def run_trajectory(
    loop: ControlLoop, trajectory: Trajectory, certificate: Certificate | None, settle: float = 0.0
) -> LoopSamples:
    """Execute a trajectory until the arm rests again, and for ``settle`` [s] more.

    Returns:
        The usable samples from the start of the trajectory on.

    Raises:
        LoopRefusal: It may not be executed.
    """
    loop.execute(trajectory, certificate)
    samples: list[LoopSample] = []
    while loop.mode in (LoopMode.TRACK, LoopMode.BRAKE):
        samples += _step(loop, 1)
    return collect_samples(samples + _step(loop, round(settle / loop.arm.period)), loop.robot.n)


def _step(loop: ControlLoop, cycles: int) -> list[LoopSample]:
    samples = []
    for _ in range(cycles):
        loop.heartbeat()
        sample = loop.step()
        if sample is not None:
            samples.append(sample)
    return samples
