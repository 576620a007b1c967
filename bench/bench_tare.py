"""Payload bounds with and without a tare.

``python bench/bench_tare.py [--trials N] [--weighed N] [--first K] [--share S] [--results FILE]``. The arm is that of
the shipped file, with the errors of its sensors; bodies are known to a share. It passes postures slowly with the empty
hand, rests, and moves with a payload: an exciting motion, or as ``~/weigh`` does, the same slow one. In every trial one
bound is attacked: from perfect data comes the
combination of all rows, of both runs, behind this bound; arm, friction, gains, offsets and every sample of both runs
then err by as much as is assumed of them, to the side that moves the bound towards the truth, and friction and offsets
drift between the runs as far as ``tare_drift`` allows. Every other trial has random errors in their place, of an arm at
the corners. Exit status 1 where a truth is outside, or an alarm is raised.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
from _synthetic import EPOCH_NS, TrueArm, measure
from _table import describe_machine, print_table
from _trials import read_results, write_result
from bench_calibration import DUMBBELL, with_uncertainty

from sysid_ros.core.estimation.bounds.set_membership import bound_by_membership
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.tare import Tare, make_tare
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.procedure.postures import weighing_postures
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory, rest_projection
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

Array = np.ndarray
SETTINGS = EstimatorSettings()
PERIOD, SECONDS, REST, HARMONICS, REACH, LIMIT_SHARE = 0.002, 15.0, 1.0, 5, 1.0, 0.4
"""Of the samples, of the motion and of the rest before it [s]; of the motion."""
TARE_SECONDS = 10.0
"""Of the motion with the empty hand [s]."""
EXCITING, SLOW = "exciting", "slow"
BETWEEN = 20.0
"""Time between the two runs [s]."""


def random_motion(robot: RobotModel, rng: np.random.Generator, seconds: float) -> FourierTrajectory:
    """A Fourier motion from rest to rest within :data:`REACH` [rad] and a share of the limits."""
    sine_basis, cosine_basis = rest_projection(HARMONICS)
    size, home = (robot.n, HARMONICS - 1), np.array(robot.home)
    sine, cosine = rng.normal(size=size) @ sine_basis.T, rng.normal(size=size) @ cosine_basis.T
    plan = FourierTrajectory(home, sine, cosine, 1.0 / seconds, seconds)
    limits = (
        (np.array(plan.position_extrema()) - home, REACH),
        (np.array(plan.velocity_extrema()), LIMIT_SHARE * robot.limits.v_max),
        (np.array(plan.acceleration_extrema()), LIMIT_SHARE * robot.limits.a_max),
    )
    used = np.max([np.abs(values).max(axis=0) / limit for values, limit in limits], axis=0)[:, None]
    return FourierTrajectory(home, sine / used, cosine / used, 1.0 / seconds, seconds)


class SlowPasses:
    """The motions of a tare, without the rests between them."""

    def __init__(self, robot: RobotModel, seconds: float):
        first, second = weighing_postures(robot, 2)[0]
        ways, rest = [robot.home, first, second, first, robot.home], np.zeros(robot.n)
        self._each = seconds / 4.0
        self._legs = [BezierTrajectory(one, rest, rest, other, self._each) for one, other in pairwise(ways)]

    def sample(self, times: Array) -> tuple[Array, Array, Array]:
        times = np.clip(times, 0.0, 4.0 * self._each)
        legs = np.minimum(times // self._each, 3).astype(int)
        parts = [leg.sample(times[legs == k] - k * self._each) for k, leg in enumerate(self._legs)]
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


class Run:
    """One motion of the arm, at rest before and after, from some time on."""

    def __init__(self, robot: RobotModel, plan: SlowPasses | FourierTrajectory, seconds: float, begin: float):
        self.robot, self.plan, self.begin = robot, plan, begin
        self.times = begin + PERIOD * np.arange(round((seconds + 2.0 * REST) / PERIOD) + 1)

    def motion(self, times: Array) -> tuple[Array, Array, Array]:
        return self.plan.sample(times - self.begin - REST)

    def torque(self, theta: Array, payload: Array, stiction: Array) -> Array:
        arm = TrueArm(self.robot, theta, payload, stiction, SETTINGS.stiction_speed)
        if self.robot.sensors.effort_is_held:
            return arm.mean_torque(self.motion, self.times, PERIOD)
        return arm.torque(*self.motion(self.times))

    def samples(self, sensors: SensorSimulation, tau: Array) -> SampleBlock:
        return measure(sensors, self.times, *self.motion(self.times)[:2], tau)

    def attacked(self, tau: Array, gain: Array, signs: dict[str, Array]) -> SampleBlock:
        """Samples that err as far as is assumed, by these signs of torques and velocities, (N, n) each.

        What vibrates errs by the share of its integral that ``vibration`` says, (N, n) [1/s].
        """
        sensors = self.robot.sensors
        q, v, _ = self.motion(self.times)
        step = np.maximum(self.robot.link_sensors.position_resolution, 1e-300)
        lasting = np.minimum(sensors.effort_mean_error, sensors.effort_absolute_error)
        error = (sensors.effort_relative_error - sensors.effort_gain_error) * np.abs(tau) + lasting
        tau = (1.0 + gain * sensors.effort_gain_error) * tau + signs["torque"] * error
        tau = tau + signs["vibration"] * sensors.effort_integral_error
        stamps = EPOCH_NS + np.round(1e9 * self.times).astype(np.int64)
        v = v + signs["velocity"] * sensors.velocity_error
        return SampleBlock(stamps, np.arange(len(stamps)), step * np.round(q / step), v, tau)


def estimate(robot: RobotModel, block: SampleBlock, tare: Tare | None) -> tuple[list, list[Rows], StreamingEstimator]:
    """All estimates of a run, and its rows."""
    rows: list[Rows] = []
    history: list = []
    estimator = StreamingEstimator(robot, SETTINGS, on_rows=rows.append, on_update=history.append, tare=tare)
    for first in range(0, len(block), 100):
        estimator.add(block.slice(first, min(first + 100, len(block))))
    estimator.complete()
    return [*history, estimator.estimate()], rows, estimator


def signs_of(run: Run, rows: Rows, weights: Array, velocity: Array, integral: Array) -> dict[str, Array]:
    """Signs of the errors of samples from those of the rows' multipliers (R,) and of the errors at their ends.

    Args:
        run: The run.
        rows: Its rows.
        weights: Their multipliers, (R,).
        velocity: What velocity errors at both ends of the windows do, (W, 2, n).
        integral: What the integral of a torque that vibrates does, (W, 2, n).
    """
    n, stamps = run.robot.n, EPOCH_NS + np.round(1e9 * run.times).astype(np.int64)
    result = {name: np.ones((len(stamps), n)) for name in ("torque", "velocity", "vibration")}
    result["vibration"][:] = 0.0
    at_ends = {stamp: np.zeros(n) for stamp in (*rows.start, *rows.stop)}
    for k in range(0, len(rows), n):
        for at, side in ((rows.start[k], 0), (rows.stop[k], 1)):
            at_ends[at] += integral[k // n, side]
    for k in range(0, len(rows), n):
        inside = (stamps > rows.start[k]) & (stamps <= rows.stop[k])
        result["torque"][inside] = np.sign(weights[k : k + n])
        # From end to end the integral goes from one side of its range to the other, or stays there.
        change = np.sign(at_ends[rows.stop[k]]) - np.sign(at_ends[rows.start[k]])
        result["vibration"][inside] = 0.5 * change / rows.duration[k]
        for at, side in ((rows.start[k], 0), (rows.stop[k], 1)):
            result["velocity"][stamps == at] = np.sign(velocity[k // n, side])
    return result


def attack(robot: RobotModel, runs: tuple[Run, Run], payload: Array, bound: int) -> tuple[SampleBlock, SampleBlock]:
    """Samples of both runs with errors of worst signs for one of the 20 bounds."""
    center, none = robot.theta_box.center, np.zeros(robot.n)
    perfect = SensorSimulation(robot.sensors, Noise.NONE, 0)
    loads = (np.zeros(INERTIAL), payload)
    blocks = [run.samples(perfect, run.torque(center, load, none)) for run, load in zip(runs, loads, strict=True)]
    tare = make_tare(robot, [blocks[0]], SETTINGS)
    _, parts, _ = estimate(robot, blocks[1], None)
    rows, unknowns = Rows.stack(parts), describe_unknowns(robot, SETTINGS)
    known = tare.rows_at(robot, unknowns, SETTINGS, int(rows.start[0]))
    prior, both = unknowns.prior, Rows.stack([known, rows])
    problem = Problem.build(both, prior.center, prior.radius, unknowns.radius, unknowns.end_error)
    found = bound_by_membership(replace(problem, objectives=np.eye(INERTIAL)[[bound % INERTIAL]]), 0.01)
    multipliers = found.warm_start.multipliers[bound // INERTIAL, -len(both) :]
    # The bound is ``l u``: what raises u by the errors of the samples moves it, and what lowers it by arm and gains.
    side = -1.0 if bound < INERTIAL else 1.0  # a lower bound is to rise
    push = -side * multipliers * (1.0 if multipliers @ both.y[:, bound % INERTIAL] > 0.0 else -1.0)
    lasting = np.sign(push @ both.b)
    theta = np.clip(center + lasting[: center.size] * robot.theta_box.radius, *_sides(robot))
    gains = -lasting[15 * robot.n : 16 * robot.n]
    blocks, ends = [], -push[:, None, None] * problem.ends[:, :, : (1 + INERTIAL) * robot.n : 1 + INERTIAL]
    vibration = push[:, None, None] * problem.ends[:, :, -robot.n :]
    edges = (slice(0, len(known)), slice(len(known), len(both)))
    for run, load, part, drift in zip(runs, loads, edges, (1.0, 0.0), strict=True):
        changed = theta.copy()
        friction = changed[INERTIAL * robot.n :].reshape(robot.n, 4)
        largest = np.array([unknowns.coulomb_upper, unknowns.viscous_upper, unknowns.offset_upper]).T
        way = np.sign(push[part] @ both.b[part][:, INERTIAL * robot.n : 14 * robot.n]).reshape(robot.n, 4)
        # At the tare it was elsewhere, as far as it may have drifted until the other run begins.
        age = runs[1].begin - runs[0].times[-1]
        friction[:, [0, 1, 3]] += drift * SETTINGS.tare_drift * age * largest * way[:, [0, 1, 3]]
        source = rows if drift == 0.0 else tare.rows
        velocity, integral = (each[part].reshape(-1, robot.n, 2, robot.n).sum(axis=1) for each in (ends, vibration))
        signs = signs_of(run, source, push[part], velocity, integral)
        blocks.append(run.attacked(run.torque(changed, load, none), gains, signs))
    return blocks[0], blocks[1]


def _sides(robot: RobotModel) -> tuple[Array, Array]:
    return robot.theta_box.lower, robot.theta_box.upper


def run_trial(share: float, seed: int, motion: str) -> dict:
    """One trial, as plain numbers."""
    robot, rng = with_uncertainty(load_robot("kinova_gen3_2f85"), share), np.random.default_rng((seed, 43))
    plan = SlowPasses(robot, SECONDS) if motion == SLOW else random_motion(robot, rng, SECONDS)
    runs = (
        Run(robot, SlowPasses(robot, TARE_SECONDS), TARE_SECONDS, 0.0),
        Run(robot, plan, SECONDS, TARE_SECONDS + 2.0 * REST + BETWEEN),
    )
    drawn = sample_payload(robot.payload_prior, rng, corner=seed % 4 == 3)
    payload = DUMBBELL if seed % 3 == 0 else drawn * min(1.0, 2.0 / drawn[0])
    started, bound = time.process_time(), seed // 2 % (2 * INERTIAL)
    if seed % 2:
        blocks = attack(robot, runs, payload, bound)
    else:
        theta, stiction = sample_parameters(robot, rng, corner=True), rng.uniform(-1.0, 1.0, robot.n)
        sensors = SensorSimulation(robot.sensors, (Noise.UNIFORM, Noise.ADVERSARIAL, Noise.GAIN)[seed // 2 % 3], seed)
        loads = (np.zeros(INERTIAL), payload)
        torques = [run.torque(theta, load, stiction) for run, load in zip(runs, loads, strict=True)]
        blocks = tuple(run.samples(sensors, tau) for run, tau in zip(runs, torques, strict=True))
    tare = make_tare(robot, [blocks[0]], SETTINGS)
    entry = {
        "seed": seed,
        "share": share,
        "motion": motion,
        "attacked": bound if seed % 2 else None,
        "tare": tare.share,
    }
    for name, known in (("without", None), ("with", tare)):
        history, rows, estimator = estimate(robot, blocks[1], known)
        last = history[-1]
        entry[name] = {
            "radius": last.radius.tolist(),
            "inside": bool(all(one.contains(payload) for one in history)),
            "room": float(np.min(np.minimum(payload - last.lower, last.upper - payload) / last.radius)),
            "alarm": last.alarm_text,
        }
    return entry | {"time": time.process_time() - started}


def show(trials: list[dict]) -> None:
    """Print what was found."""
    for share, motion in sorted({(entry["share"], entry["motion"]) for entry in trials}):
        chosen = [entry for entry in trials if (entry["share"], entry["motion"]) == (share, motion)]
        groups = (
            ("errors of worst signs for one bound", [entry for entry in chosen if entry["attacked"] is not None]),
            ("random errors, arm at a corner", [entry for entry in chosen if entry["attacked"] is None]),
            ("of these, with the 4 lb dumbbell", [e for e in chosen if e["attacked"] is None and e["seed"] % 3 == 0]),
        )
        rows = []
        for text, group in groups:
            for name in ("without", "with"):
                radii = np.median([entry[name]["radius"] for entry in group], axis=0) if group else []
                missed = sum(not entry[name]["inside"] for entry in group)
                if group:
                    rows.append([text, f"{name} a tare", len(group), missed, *radii])
        title = (
            f"Median half widths in SI units, and trials with the truth outside; {motion} motions, bodies known to "
            f"{100.0 * share:g} %"
        )
        print_table(["", "", "trials", "missed", *PARAMETER_NAMES], rows, title)


def main() -> int:
    """Run the trials and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--weighed", type=int, default=2, help="trials with slow motions, besides")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--results", default="", help="file of trials; those in it are not run again")
    arguments = parser.parse_args()
    known = read_results(arguments.results)
    done = {(entry["seed"], entry["share"], entry["motion"]) for entry in known}
    trials = list(known)
    for motion, count in ((EXCITING, arguments.trials), (SLOW, arguments.weighed)):
        for seed in range(arguments.first, arguments.first + count):
            if (seed, arguments.share, motion) not in done:
                trials.append(run_trial(arguments.share, seed, motion))
                write_result(arguments.results, trials[-1])
    show(trials)
    missed = [
        entry for entry in trials for name in ("without", "with") if not entry[name]["inside"] or entry[name]["alarm"]
    ]
    for entry in missed:
        print(f"MISS {entry}", flush=True)
    print(describe_machine(), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
