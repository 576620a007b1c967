"""External torque intervals against a momentum observer with thresholds.

``python bench/bench_contact.py [--robot NAME] [--hours H] [--arms N] [--rate F]``. Every arm is drawn in its parameter
box (every second one at a corner) with a payload and follows random motions that nothing touches; the errors of its
sensors are random, of constant sign, or a wrong gain, in turns. The first 30 s are the reference and the threshold
run. ``observer`` is the law of vendors: the generalised momentum observer with the nominal arm and the payload at the
middle of its identified bounds, with thresholds per joint of 1.5 times its largest output in the reference. Forces are
those along the axes of the tool, medians over all windows: ``certain`` is proven whatever the errors are, ``typical``
with the errors of the run. Any interval without 0 is a false alarm; exit status 1 if the guaranteed ones have any.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from _synthetic import TrueArm, measure
from _table import describe_machine, print_table

from sysid_ros.core.contact.external_torque import ExternalTorqueObserver
from sysid_ros.core.contact.wrench import WrenchObserver
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

Array = np.ndarray
REFERENCE = SEGMENT = 30.0
"""Durations of the reference and of each motion [s]."""
BANDWIDTH = 25.0
"""Of the momentum observer [rad/s]."""
MARGIN = 1.5
NOISES = (Noise.UNIFORM, Noise.ADVERSARIAL, Noise.GAIN)
METHODS = ("interval, reference", "interval, boxes only", "observer, thresholds")


@dataclass
class Tally:
    """What one method did over all windows."""

    alarms: int = 0
    certain: list[Array] = field(default_factory=list)
    typical: list[Array] = field(default_factory=list)


class MomentumObserver:
    """``r = K (p - int (W_c theta + tau + r) dt - p_0)``, which follows the external torque with a lag of ``1 / K``."""

    def __init__(self, robot: RobotModel, theta: Array):
        self._regressor, self._theta = MomentumRegressor(robot), theta

    def run(self, block: SampleBlock) -> Array:
        """Outputs for the samples, (N, n) [Nm]; every block starts anew."""
        momentum, force = self._regressor.evaluate(block.q, block.v)
        p = momentum @ self._theta
        rate = force @ self._theta + block.tau
        period = float(np.median(np.diff(block.seconds)))
        r, total, result = np.zeros(block.n), p[0].copy(), np.zeros_like(p)
        for k in range(1, len(p)):
            total += period * (0.5 * (rate[k] + rate[k - 1]) + r)
            r = BANDWIDTH * (p[k] - total)
            result[k] = r
        return result


def random_motion(robot: RobotModel, rng: np.random.Generator) -> Callable[[Array], tuple[Array, Array, Array]]:
    """Sines around home within half of the limits of speed and acceleration."""
    omega = 2.0 * np.pi * rng.uniform(0.05, 0.4, robot.n)
    limit = np.minimum(0.5 * robot.limits.v_max / omega, 0.5 * robot.limits.a_max / omega**2)
    amplitude = np.minimum(rng.uniform(0.2, 0.6, robot.n), limit)
    phase = rng.uniform(-np.pi, np.pi, robot.n)

    def motion(times: Array) -> tuple[Array, Array, Array]:
        angle = np.multiply.outer(times, omega) + phase
        sine, cosine = amplitude * np.sin(angle), amplitude * np.cos(angle)
        return np.asarray(robot.home) + sine, omega * cosine, -(omega**2) * sine

    return motion


def record(
    robot: RobotModel, arm: TrueArm, sensors: SensorSimulation, rng: np.random.Generator, start: float, rate: float
) -> SampleBlock:
    """Samples of one motion that begins at ``start`` [s]."""
    motion, period = random_motion(robot, rng), 1.0 / rate
    times = period * np.arange(round(SEGMENT * rate))
    states = motion(times)
    tau = arm.mean_torque(motion, times, period) if robot.sensors.effort_is_held else arm.torque(*states)
    block = measure(sensors, start + times, *states[:2], tau)
    return replace(block, sequence=block.sequence + round(start * rate))


def smallest(margin_below: Array, margin_above: Array, torques: Array) -> Array:
    """Smallest force along each axis, the worse of its two signs, that leaves the margins of some joint, (K,) [N].

    Args:
        margin_below: How far each joint's torque may fall before it shows, (n,) [Nm].
        margin_above: How far it may rise, (n,) [Nm].
        torques: Joint torques of unit forces, (K, n) [m].
    """
    found = []
    for sign in (1.0, -1.0):
        margins = np.where(sign * torques > 0.0, margin_above, margin_below)
        with np.errstate(divide="ignore"):
            found.append(np.min(margins / np.abs(torques), axis=1))
    return np.max(found, axis=0)


def run_arm(robot: RobotModel, seed: int, segments: int, rate: float, tallies: dict[str, Tally]) -> int:
    """Run one arm; return the number of windows."""
    rng = np.random.default_rng(seed)
    settings = EstimatorSettings()
    theta, payload = sample_parameters(robot, rng, seed % 2 == 0), sample_payload(robot.payload_prior, rng)
    stiction = rng.uniform(-1.0, 1.0, robot.n)
    arm = TrueArm(robot, theta, payload, stiction, settings.stiction_speed)
    sensors = SensorSimulation(robot.sensors, NOISES[seed % len(NOISES)], seed)
    first = record(robot, arm, sensors, rng, 0.0, rate)
    estimator = StreamingEstimator(robot, settings)
    estimator.add(first)
    learned, boxed = (ExternalTorqueObserver(robot, settings) for _ in range(2))
    learned.set_reference(estimator.stored_windows, estimator.bounds.box, estimator.stream.reference)
    boxed.set_reference((), estimator.bounds.box, estimator.stream.reference)
    wrench = WrenchObserver(robot)
    nominal = robot.theta_nominal.copy()
    nominal[robot.inertial_slice(robot.n)] += estimator.bounds.box.center
    vendor = MomentumObserver(robot, nominal)
    skip = round(rate)  # the observer settles
    threshold = MARGIN * np.abs(vendor.run(first)[skip:]).max(axis=0)
    windows = 0
    for segment in range(1, segments + 1):
        block = record(robot, arm, sensors, rng, segment * (SEGMENT + 1.0), rate)
        output = vendor.run(block)
        # Boxes only are compared on the first motion of each arm.
        for observer, method in ((learned, METHODS[0]), (boxed, METHODS[1]))[: 2 if segment == 1 else 1]:
            tally = tallies[method]
            for external in observer.add(block):
                tally.alarms += bool(external.is_proven.any())
                torques = wrench.jacobian(external.q[len(external.q) // 2])[:3]
                tally.certain.append(wrench.smallest_detectable(external)[:3])
                tally.typical.append(smallest(external.upper, -external.lower, torques))
                if observer is learned:
                    windows += 1
                    k = min(int(np.searchsorted(block.stamps, external.stop)), len(block) - 1)
                    if k >= skip:
                        other = tallies[METHODS[2]]
                        other.alarms += bool(np.any(np.abs(output[k]) > threshold))
                        other.typical.append(smallest(threshold + output[k], threshold - output[k], torques))
    return windows


def main(argv: list[str] | None = None) -> int:
    """Print the table; return 1 on a false alarm of an interval."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--hours", type=float, default=1.0, help="simulated motion after the references, all arms")
    parser.add_argument("--arms", type=int, default=12)
    parser.add_argument("--rate", type=float, default=500.0, help="samples per second [Hz]")
    options = parser.parse_args(argv)
    print(describe_machine())
    robot = load_robot(options.robot)
    segments = max(1, round(options.hours * 3600.0 / SEGMENT / options.arms))
    tallies = {method: Tally() for method in METHODS}
    began, windows = time.process_time(), 0
    for seed in range(options.arms):
        windows += run_arm(robot, seed, segments, options.rate, tallies)
    hours = options.arms * segments * SEGMENT / 3600.0
    rows = []
    for method, tally in tallies.items():
        certain = np.median(tally.certain, axis=0) if tally.certain else None
        typical = np.median(tally.typical, axis=0)
        shown = ["-"] * 3 if certain is None else list(certain)
        rows.append([method, len(tally.typical), tally.alarms, *shown, *typical])
    axes = [f"{kind} {axis} [N]" for kind in ("certain", "typical") for axis in "xyz"]
    title = f"{robot.name}, {options.arms} arms, {hours:.3g} h of motion without contact, {options.rate:g} Hz"
    print_table(["method", "windows", "false alarms", *axes], rows, title)
    print(f"{1e3 * (time.process_time() - began) / windows:.3g} ms of processor time per window, simulation included")
    return 1 if tallies[METHODS[0]].alarms or tallies[METHODS[1]].alarms else 0


if __name__ == "__main__":
    sys.exit(main())
