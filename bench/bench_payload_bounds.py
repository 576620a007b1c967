"""Payload bounds with a calibrated arm, and their limit.

``python bench/bench_payload_bounds.py [--trials N] [--first K] [--workers N] [--results FILE] [--payloads P]
[--show]``. An arm is known to 20 % and its torque sensors to a constant gain of 2.5 % and a rest of 0.5 % of the
torque at any time. It is calibrated by 15 s of a motion with the empty hand and 15 s of the same with a reference
weight, and then carries P payloads of 1.81 kg, a trial each, for 15 s of that motion. Arms, gains, friction, payloads
and motions are drawn anew for every arm; every second arm lies at the corners of its box. Errors of the sensors are
random, of constant sign, at their limits in every sample, or worst gains, in turns. A trial counts as inside if the
payload is in the bounds at every update, the arm in the box of its calibration, and arm and gains in every certified
row. ``limit`` is the same motion with arm and gains known exactly. ``joint program`` is the least that any method
can prove of the mass from the same rows: the exact program of all rows of all recordings at once, and of what is
linear of the shapes of their loads, with error budgets for the box that was proven, for every fifth arm. With
``--results`` trials are noted and not run again, and with ``--show`` none is run. Exit status 1 if a truth is
outside, an alarm is raised, or a trial fails.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from dataclasses import replace
from datetime import date

import numpy as np
import scipy.sparse as sparse
from _containment import SaturatedSensors
from _synthetic import TrueArm, measure
from _table import describe_machine, print_lead, print_table
from _trials import describe_results, open_workers, read_results, write_result
from bench_calibration import DUMBBELL, GAIN, PERIOD, REST, TOLERANCE, gripper_of, with_torque_error, with_uncertainty
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.calibration import (
    KnownLoad,
    LoadedRecording,
    Work,
    add_load_cuts,
    calibrate_arm,
    collect_rows,
    empty_hand,
    join_recordings,
    reference_weight,
)
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibrated import apply_calibration
from sysid_ros.core.model.calibration import ArmCalibration, CalibrationRecord
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.trajectories.families import FourierTrajectory, rest_projection
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

Array = np.ndarray
SHARE, MASS, WEIGHT = 0.2, 1.81, 2.4
SECONDS, REACH, LIMIT_SHARE, HARMONICS = 15.0, 1.2, 0.5, 5
SETTINGS = EstimatorSettings(window_duration=0.3, max_windows=60)
"""Errors of velocities, stamps and encoders at the ends of windows count less in longer ones, and so few are not worth
compacting."""
NOISES = ("random", "constant signs", "at their limits", "worst gains")
TARGETS = np.array([0.08, 0.01, 0.01, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03])
"""Radii that users want: mass [kg], first moments [kg m], inertias [kg m^2]."""


def open_sensors(robot: RobotModel, kind: str, seed: int) -> SensorSimulation:
    """Sensors with a kind of errors; gain and signs are theirs for good."""
    if kind == "at their limits":
        return SaturatedSensors(robot.sensors, Noise.UNIFORM, seed)
    noise = {"random": Noise.UNIFORM, "constant signs": Noise.ADVERSARIAL, "worst gains": Noise.GAIN}[kind]
    return SensorSimulation(robot.sensors, noise, seed)


def random_motion(robot: RobotModel, rng: np.random.Generator) -> FourierTrajectory:
    """A Fourier motion from rest to rest, within :data:`REACH` and a share of the speed and acceleration limits."""
    sine_basis, cosine_basis = rest_projection(HARMONICS)
    size, home, frequency = (robot.n, HARMONICS - 1), np.array(robot.home), 1.0 / SECONDS
    sine, cosine = rng.normal(size=size) @ sine_basis.T, rng.normal(size=size) @ cosine_basis.T
    plan = FourierTrajectory(home, sine, cosine, frequency, SECONDS)
    limits = (
        (np.array(plan.position_extrema()) - home, REACH),
        (np.array(plan.velocity_extrema()), LIMIT_SHARE * robot.limits.v_max),
        (np.array(plan.acceleration_extrema()), LIMIT_SHARE * robot.limits.a_max),
    )
    used = np.max([np.abs(values).max(axis=0) / limit for values, limit in limits], axis=0)[:, None]
    return FourierTrajectory(home, sine / used, cosine / used, frequency, SECONDS)


class Arm:
    """One arm with its sensors and its motion."""

    def __init__(self, robot: RobotModel, number: int):
        self.robot, self.rng = robot, np.random.default_rng((number, 17))
        self.is_corner = number % 2 == 1
        self.noise = NOISES[number // 2 % len(NOISES)]
        self.theta = sample_parameters(robot, self.rng, corner=self.is_corner)
        self.sensors = open_sensors(robot, self.noise, number)
        self.stiction = self.rng.uniform(-1.0, 1.0, robot.n)
        self.plan = random_motion(robot, self.rng)
        self.time = 0.0

    def record(self, load: Array) -> SampleBlock:
        """Samples of the motion with a load."""
        start, arm = self.time, TrueArm(self.robot, self.theta, load, self.stiction, SETTINGS.stiction_speed)
        times = start + PERIOD * np.arange(round(SECONDS / PERIOD) + 1)
        self.time = float(times[-1]) + 1.0

        def motion(at: Array) -> tuple[Array, Array, Array]:
            return self.plan.sample(at - start)

        q, v, _ = motion(times)
        return measure(self.sensors, times, q, v, arm.mean_torque(motion, times, PERIOD))

    def recordings(self) -> list[LoadedRecording]:
        """Motion with the empty hand and with a reference weight."""
        load = reference_weight(self.robot, WEIGHT, TOLERANCE)
        weight = self.record(sample_payload(load.prior, self.rng, corner=self.is_corner))
        return [
            LoadedRecording("empty", [self.record(np.zeros(INERTIAL))], empty_hand()),
            LoadedRecording("weight", [weight], load),
        ]

    def is_inside(self, calibration: ArmCalibration) -> bool:
        """Whether every shared unknown keeps what the calibration proves: each parameter, and each certified row."""
        n = self.robot.n
        gain = -self.sensors.gain_error / (1.0 + self.sensors.gain_error)
        rows = calibration.matrix @ np.concatenate([self.theta, np.zeros(n), gain, np.zeros(3)])
        return bool(
            calibration.box.contains(self.theta) and np.all((calibration.lower <= rows) & (rows <= calibration.upper))
        )

    def known(self) -> RobotModel:
        """The arm as it is, for torques without their gain errors."""
        robot = with_torque_error(self.robot, 0.0, REST / (1.0 - GAIN))
        return replace(robot, theta_box=Box(self.theta, self.theta))


def identify(robot: RobotModel, block: SampleBlock, payload: Array) -> tuple[ParameterEstimate, bool]:
    """The estimate, and whether the payload is inside its bounds at every update."""
    inside: list[bool] = []
    settings = replace(SETTINGS, gripper=gripper_of(robot))
    estimator = StreamingEstimator(
        robot, settings, on_update=lambda estimate: inside.append(estimate.contains(payload))
    )
    estimator.add(block)
    estimate = estimator.estimate()
    return estimate, all(inside) and estimate.contains(payload)


def joint_limit(robot: RobotModel, recordings: list[LoadedRecording]) -> float:
    """Radius of the mass of the first recording's load [kg], by HiGHS from all rows of all recordings at once."""
    none, parts = np.zeros(robot.n), []
    for recording in recordings:
        work = Work(1, lambda progress: None, lambda: False)
        parts.append((*collect_rows(robot, recording, SETTINGS, none, work), recording.load.prior.box))
    joint = add_load_cuts(join_recordings(parts, none), parts, none)  # whose nuisances begin with the first load
    radii = np.concatenate([joint.radius, joint.delta_radius, joint.end_radii])
    matrix = sparse.diags_array(1.0 / joint.error) @ sparse.hstack([joint.y, joint.b, joint.end_matrix])
    matrix = matrix @ sparse.diags_array(radii)
    both, right = sparse.vstack([matrix, -matrix]).tocsr(), joint.r / joint.error
    limits, cost = np.concatenate([1.0 + right, 1.0 - right]), np.zeros(radii.size)
    cost[joint.radius.size] = 1.0
    least, largest = (
        sign * linprog(sign * cost, both, limits, bounds=(-1.0, 1.0), method="highs-ipm").fun for sign in (1.0, -1.0)
    )
    return float(0.5 * (largest - least) * recordings[0].load.prior.box.radius[0])


def run_arm(number: int, seeds: list[int]) -> list[dict]:
    """All trials of one arm; one that cannot be run is a finding, not the end of the others."""
    try:
        return _run_arm(number, seeds)
    except Exception as error:  # noqa: BLE001 - see above
        return [{"seed": seed, "arm": number, "error": f"{type(error).__name__}: {error}"} for seed in seeds]


def _run_arm(number: int, seeds: list[int]) -> list[dict]:
    robot = with_torque_error(with_uncertainty(load_robot("kinova_gen3_2f85"), SHARE), GAIN, REST)
    arm = Arm(robot, number)
    recordings, started = arm.recordings(), time.process_time()
    calibration = calibrate_arm(
        robot, recordings, CalibrationRecord(serial="bench", date=date.today().isoformat()), SETTINGS
    )
    spent, is_arm_inside = time.process_time() - started, arm.is_inside(calibration)
    calibrated, entries = apply_calibration(calibration, robot), []
    for seed in seeds:
        rng = np.random.default_rng((seed, 18))
        drawn = sample_payload(robot.payload_prior, rng, corner=seed % 2 == 1)
        payload = DUMBBELL if seed % 10 == 0 else drawn * (MASS / drawn[0])
        block = arm.record(payload)
        estimate, is_inside = identify(calibrated, block, payload)
        entry = {
            "seed": seed,
            "arm": number,
            "noise": arm.noise,
            "corner": arm.is_corner,
            "inside": is_inside and is_arm_inside,
            "alarm": estimate.alarm_text,
            "radius": estimate.radius.tolist(),
            "error": "",
            "deviation": (estimate.values - payload).tolist(),
            "budget": {name: float(share[0]) for name, share in estimate.error_budget.items()},
            "calibration": spent,
        }
        if seed == seeds[0]:
            entry["before"] = identify(robot, block, payload)[0].radius.tolist()
            exact = replace(block, tau=block.tau / (1.0 + arm.sensors.gain_error))
            entry["limit"] = identify(arm.known(), exact, payload)[0].radius.tolist()
            if number % 5 == 0:
                proven = replace(robot.payload_prior, box=Box(estimate.lower, estimate.upper))
                held = LoadedRecording("payload", [block], KnownLoad("payload", proven))
                entry["joint"] = joint_limit(replace(robot, theta_box=calibration.box), [held, *recordings])
        entries.append(entry)
    return entries


def run_all(arguments: argparse.Namespace) -> list[dict]:
    """All trials asked for; those in the file of results are not run again."""
    wanted = range(arguments.first, arguments.first + arguments.trials)
    done = {entry["seed"]: entry for entry in read_results(arguments.results)}
    trials = [done[seed] for seed in wanted if seed in done]
    missing: dict[int, list[int]] = {}
    for seed in wanted:
        if seed not in done:
            missing.setdefault(seed // arguments.payloads, []).append(seed)
    with open_workers(arguments.workers) as run:
        for entries in run(run_arm, list(missing.items())):
            for entry in entries:
                trials.append(entry)
                write_result(arguments.results, entry)
                if is_miss(entry):
                    print(f"MISS {entry}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{len(trials)} of {len(wanted)}", end="", file=sys.stderr)
    return trials


def is_miss(entry: dict) -> bool:
    """Whether a trial breaks a guarantee, raises an alarm or failed."""
    return bool(entry["error"] or entry["alarm"]) or not entry["inside"]


MOVED_BY = {
    "calibration": ("calibration",),
    "errors of torques that change from sample to sample": ("torque_relative", "torque_absolute", "torque_gain"),
    "errors of velocities, encoders and stamps": ("velocity", "encoder", "jitter", "quadrature"),
}
"""Sources of error by what would move them."""


def describe_limits(radius: Array, limit: Array, shares: dict[str, float]) -> str:
    """Say which of the wanted radii are reached, what the radius of the mass rests on, and what would move it."""
    median = np.median(radius, axis=0)
    missed = [
        f"{PARAMETER_NAMES[k]} ({median[k]:.3g}, wanted {TARGETS[k]:g})" for k in np.flatnonzero(median > TARGETS)
    ]
    reached = [PARAMETER_NAMES[k] for k in np.flatnonzero(median <= TARGETS)]
    parts = {name: 1e3 * sum(shares.get(one, 0.0) for one in terms) for name, terms in MOVED_BY.items()}
    of_mass = " g, ".join(f"{name} {part:.0f}" for name, part in parts.items())
    return (
        f"Wanted radii that the median trial reaches: {', '.join(reached) or 'none'}; "
        f"not: {', '.join(missed) or 'none'}. Of the radius of the mass {of_mass} g. The first is moved by heavier or "
        "more reference weights and longer motions of the calibration, the second by better torque sensors or a bound "
        "of their mean errors, the third by longer windows and finer sensors. With arm and gains known exactly "
        f"{1e3 * np.median(limit, axis=0)[0]:.0f} g would be left: only sensors and motions move that."
    )


def print_results(trials: list[dict]) -> None:
    """Print widths, errors, the limit and what the width of the mass consists of."""
    good = [entry for entry in trials if not entry["error"] and not entry["alarm"]]
    radius, deviation = (np.array([entry[name] for entry in good]) for name in ("radius", "deviation"))
    before, limit = (np.array([e[name] for e in good if name in e]) for name in ("before", "limit"))
    rows: list[list[object]] = [
        ["arm known to 20 %, no calibration: median", *np.median(before, axis=0)],
        ["calibrated: median", *np.median(radius, axis=0)],
        ["calibrated: worst trial", *radius.max(axis=0)],
        ["limit, arm and gains known: median", *np.median(limit, axis=0)],
        ["wanted", *TARGETS],
        ["point estimate: median error", *np.median(np.abs(deviation), axis=0)],
        ["point estimate: largest error", *np.abs(deviation).max(axis=0)],
        ["wanted of the point estimate", *(TARGETS / 5.0)],
    ]
    shares = {name: float(np.median([entry["budget"][name] for entry in good])) for name in good[0]["budget"]}
    print_lead(describe_limits(radius, limit, shares))
    inside, arms = sum(not is_miss(entry) for entry in trials), len({entry["arm"] for entry in trials})
    title = f"Radii of guaranteed bounds: {inside} of {len(trials)} trials inside, {arms} arms [kg, kg m, kg m^2]"
    print_table(["", *PARAMETER_NAMES], rows, title)
    kinds = [
        [
            noise,
            sum(e["noise"] == noise for e in good),
            np.median([e["radius"][0] for e in good if e["noise"] == noise]),
        ]
        for noise in NOISES
        if any(e["noise"] == noise for e in good)
    ]
    print_table(["errors of the sensors", "trials", "radius of the mass [kg]"], kinds)
    largest = sorted(shares.items(), key=lambda item: -item[1])
    rows = [[name, share] for name, share in largest if share > 0.01 * np.median(radius[:, 0])]
    print_table(["what the radius of the mass consists of", "median share [kg]"], rows)
    joint = [(e["joint"], e["radius"][0]) for e in good if "joint" in e]
    if joint:
        best, ours = np.array(joint).T
        rows = [[len(joint), np.median(best), best.max(), np.median(ours), np.median(ours / best)]]
        heads = ["arms", "exact: median [kg]", "exact: worst [kg]", "ours: median [kg]", "ours / exact: median"]
        print_table(
            heads, rows, "Radius of the mass: the joint program of all recordings, the least that their rows allow"
        )
    spent = np.median([entry["calibration"] for entry in good])
    print(f"calibration: {spent:.1f} s of processor time; {2 * SECONDS:g} s of motion, reference weight {WEIGHT:g} kg")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--payloads", type=int, default=10, help="trials of each arm")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--results", default="", help="file of results, one JSON object per line")
    parser.add_argument("--show", action="store_true", help="only what the file of results has")
    arguments = parser.parse_args()
    print(describe_machine(), flush=True)
    trials = read_results(arguments.results) if arguments.show else run_all(arguments)
    if not trials:
        parser.error("there are no results to show; leave out --show, or give their file")
    if arguments.results:
        print(describe_results(arguments.results))
    print_results(trials)
    return int(any(is_miss(entry) for entry in trials))


if __name__ == "__main__":
    sys.exit(main())
