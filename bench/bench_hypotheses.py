"""Ranking of causes where exactly one assumption is broken.

``python bench/bench_hypotheses.py [--robot NAME] [--trials N] [--seconds S]``. Every trial draws an arm inside its
parameter box, a payload and a motion, and breaks one assumption by a random amount; joint and time are random, too. The
estimator runs on the samples; where it alarms, hypotheses are tried and ranked. ``first`` and ``two``: of those, the
true one (with the true joint) is ranked first, or among the first two. ``misfit``: least scale of all error bounds with
which the data would be feasible. ``wrong``: no alarm, and the true payload is outside its bounds.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
from _containment import random_motion
from _synthetic import TrueArm, measure
from _table import describe_machine, print_table

from sysid_ros.core.estimation.hypotheses import Assumption, Explanation, explain_inconsistency
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

PERIOD = 0.001
"""Of the samples [s]."""


@dataclass(frozen=True)
class Broken:
    """A recording in which one assumption does not hold.

    Attributes:
        samples: The recording.
        joint: The joint it is about, or None.
        amount: By how much, in words.
        payloads: True parameters of the payload, (10,), before and after a change.
    """

    samples: SampleBlock
    joint: str | None
    amount: str
    payloads: tuple[np.ndarray, np.ndarray]


def record(robot: RobotModel, assumption: Assumption, seed: int, seconds: float) -> Broken:
    """Samples in which one assumption is broken."""
    rng = np.random.default_rng((seed, list(Assumption).index(assumption)))
    theta, payload = sample_parameters(robot, rng), sample_payload(robot.payload_prior, rng)
    chosen = int(rng.integers(robot.n))
    limit, amount, joint = float(robot.limits.tau_max[chosen]), "", robot.joint_names[chosen]
    true, after, lag = robot, payload, 0.0
    if assumption is Assumption.FRICTION:
        more = rng.uniform(0.03, 0.08) * limit
        theta[INERTIAL * robot.n + 4 * chosen] += more
        amount = f"{more:.2g} Nm"
    elif assumption is Assumption.TORQUE_OFFSET:
        more = rng.choice([-1.0, 1.0]) * rng.uniform(0.02, 0.06) * limit
        theta[INERTIAL * robot.n + 4 * chosen + 3] += more
        amount = f"{more:.2g} Nm"
    elif assumption is Assumption.GRAVITY:
        angle, heading = np.radians(rng.uniform(3.0, 8.0)), rng.uniform(0.0, 2.0 * np.pi)
        turn = pin.exp3(angle * np.array([np.cos(heading), np.sin(heading), 0.0]))
        model = robot.pin_model.copy()
        model.gravity = pin.Motion(turn @ model.gravity.linear, np.zeros(3))
        true, joint, amount = replace(robot, pin_model=model), None, f"{np.degrees(angle):.2g} deg"
    elif assumption is Assumption.PAYLOAD_PRIOR:
        payload = after = payload * rng.uniform(1.3, 1.8) * robot.payload_prior.box.upper[0] / payload[0]
        joint, amount = None, f"{payload[0]:.3g} kg"
    elif assumption is Assumption.PAYLOAD_CHANGE:
        other = sample_payload(robot.payload_prior, rng)
        after, joint = payload + rng.uniform(0.4, 1.0) * (other - payload), None
    elif assumption is Assumption.TORQUE_LAG:
        lag, joint = rng.uniform(0.012, 0.03), None
        amount = f"{1e3 * lag:.2g} ms"
    plan = random_motion(robot, robot.home, rng, 3.0)
    times = PERIOD * np.arange(round(seconds / PERIOD) + 1)

    def motion(at: np.ndarray) -> tuple[np.ndarray, ...]:
        return plan.sample(np.mod(at, 3.0))

    q, v, a = motion(times)
    torques = []
    for held in (payload, after):
        arm = TrueArm(true, theta, held, rng.uniform(-1.0, 1.0, robot.n), EstimatorSettings().stiction_speed)
        late = times - lag
        is_held = robot.sensors.effort_is_held
        torques.append(arm.mean_torque(motion, late, PERIOD) if is_held else arm.torque(*motion(late)))
    change = rng.uniform(0.3, 0.7) * seconds
    tau = np.where((times <= change)[:, None], *torques)
    if assumption is Assumption.PAYLOAD_CHANGE:
        amount = f"{change:.2f} s"
    if assumption is Assumption.TORQUE_GAIN:
        gain = 1.0 + rng.choice([-1.0, 1.0]) * rng.uniform(0.06, 0.15)
        tau[:, chosen] *= gain
        amount = f"{gain:.3g}"
    if assumption is Assumption.EFFORT_SIGN:
        tau, joint = -tau, None
    samples = measure(SensorSimulation(robot.sensors, Noise.UNIFORM, seed), times, q, v, tau)
    return Broken(samples, joint, amount, (payload, after))


def is_true(assumption: Assumption, joint: str | None, explanation: Explanation, among: int) -> bool:
    """Whether the broken assumption is among the first hypotheses, with its joint."""
    return any(one.assumption is assumption and one.joint == joint for one in explanation.hypotheses[:among])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--trials", type=int, default=10, help="of each assumption")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    robot, rows = load_robot(options.robot), []
    for assumption in Assumption:
        first = two = alarms = wrong = 0
        spent, size = [], []
        for seed in range(options.trials):
            broken = record(robot, assumption, seed, options.seconds)
            estimator = StreamingEstimator(robot, EstimatorSettings(bound_tolerance=0.05))
            estimator.add(broken.samples)
            estimate = estimator.estimate()
            if estimate.is_consistent:
                wrong += not any(estimate.contains(payload) for payload in broken.payloads)
                continue
            alarms += 1
            started = time.process_time()
            explanation = explain_inconsistency(robot, EstimatorSettings(), [broken.samples])
            spent.append(time.process_time() - started)
            size.append(explanation.misfit)
            first += is_true(assumption, broken.joint, explanation, 1)
            two += is_true(assumption, broken.joint, explanation, 2)
            if options.verbose:
                print(assumption.value, broken.joint, broken.amount, f"misfit {explanation.misfit:.3g}")
                for one in explanation.hypotheses[:5]:
                    print(f"    {one.change:6.2f} {one.misfit:6.3f} {one.text}", flush=True)
        counts = [options.trials, wrong, alarms, first, two]
        rows.append([assumption.value, *counts, np.median(size or [np.nan]), np.median(spent or [np.nan])])
    columns = ["broken", "trials", "wrong", "alarms", "first", "two", "misfit [-]", "CPU time [s]"]
    print_table(columns, rows, f"{robot.name}, {options.seconds:g} s of data")
    print(describe_machine())


if __name__ == "__main__":
    main()
