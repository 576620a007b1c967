"""Whether the truth lies inside the guaranteed bounds, in randomised simulations of the real control loop.

``python bench/bench_containment.py [--trials N] [--first K] [--robot NAME] [--seconds S]``. Every trial draws a robot
inside its parameter box (every other one at a corner), a payload, the kind of sensor errors and an exciting motion,
runs the loop with the MuJoCo arm in lock-step and estimates from what the loop recorded. The identification never sees
the simulator's parameters. The same seed gives the same trial. Exit status 1 if any parameter is outside.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time

import numpy as np
from _table import describe_machine, print_table

from sysid_ros.core.control import build_controller
from sysid_ros.core.estimation.offline import estimate_from_samples
from sysid_ros.core.estimation.settings import EstimatorSettings
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.planning.certificate import Certificate, box_hash
from sysid_ros.core.planning.fourier import FourierTrajectory, rest_projection
from sysid_ros.drivers.lockstep import run_for, run_trajectory
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.mujoco_arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.sensor_simulation import Noise

NOISES = (Noise.UNIFORM, Noise.ADVERSARIAL, Noise.GAIN)
HARMONICS = 5


def random_motion(robot, q_start, rng, seconds):  # noqa: ANN001, ANN201
    """A Fourier motion that starts and ends at rest, within 0.5 rad and half of the limits."""
    sine_basis, cosine_basis = rest_projection(HARMONICS)
    size = (robot.n, HARMONICS - 1)
    sine, cosine = rng.normal(size=size) @ sine_basis.T, rng.normal(size=size) @ cosine_basis.T
    plan = FourierTrajectory(q_start, sine, cosine, 1.0 / seconds, seconds)
    used = []
    for extrema, limit in (
        (plan.position_extrema(), 0.5),
        (plan.velocity_extrema(), 0.5 * robot.limits.v_max),
        (plan.acceleration_extrema(), 0.5 * robot.limits.a_max),
    ):
        offset = q_start if limit is not None and np.ndim(limit) == 0 else 0.0
        used.append(np.max(np.abs(np.array(extrema) - offset), axis=0) / limit)
    scale = 1.0 / np.max(used, axis=0)[:, None]
    return FourierTrajectory(q_start, scale * sine, scale * cosine, 1.0 / seconds, seconds)


def run_trial(name: str, seed: int, seconds: float, settings: EstimatorSettings) -> dict:
    """One trial; see the module."""
    rng = np.random.default_rng(seed)
    robot = load_robot(name)
    corner = seed % 2 == 0
    theta, payload = (
        sample_parameters(robot, rng, corner),
        sample_payload(robot.payload_prior, rng, corner=seed % 8 == 7),
    )
    noise = NOISES[(seed // 2) % len(NOISES)]
    arm = MujocoArm(robot, theta, payload, settings=MujocoSettings(noise=noise, seed=seed))
    loop = ControlLoop(arm, build_controller("gravity_pid", robot), robot, LoopSettings())
    loop.connect()
    blocks = [run_for(loop, 0.3).block]
    plan = random_motion(robot, np.array(loop.status().reference), rng, seconds)
    claims = "nothing was checked; for a benchmark in simulation only"
    bound = np.full(robot.n, 0.2)
    certificate = Certificate(plan.hash(), box_hash(*loop.boxes), plan.start, "sampled", claims, {}, bound, 0.0, 1e12)
    blocks.append(run_trajectory(loop, plan, certificate).block)
    started = time.process_time()
    estimate, history, _ = estimate_from_samples(robot, blocks, settings)
    return {
        "seed": seed,
        "noise": noise.value,
        "corner": corner,
        "inside": all(item.contains(payload) for item in [*history, estimate]),
        "alarm": estimate.alarm,
        "parameters": int(np.sum((estimate.lower <= payload) & (payload <= estimate.upper))),
        "share": np.abs(payload - 0.5 * (estimate.lower + estimate.upper)) / estimate.half_width,
        "half_width": estimate.half_width,
        "prior": 0.5 * robot.payload_prior.box.width,
        "seconds": estimate.data_seconds,
        "stop": loop.status().reason,
        "time": time.process_time() - started,
    }


def summarise(trials: list[dict], name: str) -> bool:
    rows = []
    for noise in NOISES:
        for corner in (False, True):
            group = [trial for trial in trials if trial["noise"] == noise.value and trial["corner"] == corner]
            if group:
                nearest = max(float(np.max(trial["share"])) for trial in group)
                inside = sum(trial["inside"] for trial in group)
                motion = np.median([trial["seconds"] for trial in group])
                cost = np.median([trial["time"] for trial in group])
                where = "corners" if corner else "inside the box"
                parameters = sum(trial["parameters"] for trial in group)
                counts = f"{inside} of {len(group)}", f"{parameters} of {10 * len(group)}"
                rows.append([where, noise.value, *counts, nearest, motion, cost])
    columns = ["robot", "sensor errors", "trials inside", "parameters inside", "largest |error| / half width"]
    print_table([*columns, "data [s]", "estimation [s]"], rows, f"Containment, {name}")
    widths = np.array([trial["half_width"] for trial in trials])
    prior = trials[0]["prior"]
    rows = [
        [f"{PARAMETER_NAMES[k]} [{PARAMETER_UNITS[k]}]", prior[k], *np.quantile(widths[:, k], [0.1, 0.5, 0.9])]
        for k in range(10)
    ]
    print_table(["parameter", "prior half width", "10 %", "median", "90 %"], rows, "Half widths of the bounds")
    for trial in trials:
        if not trial["inside"] or trial["alarm"]:
            print(f"trial {trial['seed']} ({trial['noise']}): OUTSIDE, share {trial['share']}; {trial['alarm']}")
    return all(trial["inside"] for trial in trials)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200, help="number of trials")
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--robot", default="kinova_gen3_2f85", help="name of the robot")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of the motion [s]")
    parser.add_argument("--method", default="set_membership", help="method of the bounds")
    arguments = parser.parse_args()
    print(describe_machine())
    settings = EstimatorSettings(method=arguments.method, reweightings=1)
    trials = []
    for seed in range(arguments.first, arguments.first + arguments.trials):
        trials.append(run_trial(arguments.robot, seed, arguments.seconds, settings))
        if sys.stderr.isatty():
            print(f"\r{len(trials)} of {arguments.trials}", end="", file=sys.stderr)
    return 0 if summarise(trials, arguments.robot) else 1


if __name__ == "__main__":
    sys.exit(main())
