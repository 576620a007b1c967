"""How soon a changed payload is noticed.

``python bench/bench_payload_change.py [--robot NAME ...] [--trials N] [--first K] [--seconds S] [--only PART]``. Every
trial draws an arm in its parameter box, every second one at a corner, a motion, and when the change happens. In the
first table it is any payload of the prior before and after, and errors of the sensors are random. ``allowed`` is the
first window with which scipy's ``linprog`` finds no unknowns that agree with all rows of all windows so far, none of
them compacted. The estimator, which forgets old windows but for a few combinations of their rows, can be earlier (it
also knows that a payload is a body) or later. In the second table a held dumbbell of 1.81 kg slips across
the axis of the last joint (x) or along it (z), is lost, halves, gains weight, or stays as it is; errors of the sensors
are in turns absent, random, of constant sign, and a wrong gain. ``certain``: no payload agrees with all data, so there
is an alarm. ``told``: the statistical test warns, and nothing is certain before. Exit status 1 if the estimator is
later than possible by more than a window, or anything is noticed before it happens.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
from collections.abc import Callable

import numpy as np
import scipy.sparse
from _containment import build_problem, random_motion
from _synthetic import TrueArm, measure
from _table import describe_machine, print_table
from scipy.optimize import linprog

from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import SampleStream
from sysid_ros.core.model.inertia import from_com_form, to_com_form
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation, load_payload

PERIOD = 0.001
"""Of the samples [s]."""
NEVER = 10**6
"""Number of the window if there is none."""


DUMBBELL = "dumbbell_4lb"
Event = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def slip(axis: int, distance: float) -> Event:
    """Return what a payload becomes, (10,), that slips by a distance [m] along an axis, in either direction."""

    def after(payload: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        mass, com, inertia = to_com_form(payload)
        return from_com_form(mass, com + distance * rng.choice([-1.0, 1.0]) * np.eye(3)[axis], inertia)

    return after


EVENTS: dict[str, Event] = {
    "nothing": lambda payload, _: payload,
    **{f"slips {cm} cm along {'xyz'[axis]}": slip(axis, 0.01 * cm) for axis in (0, 2) for cm in (1, 2, 5)},
    "lost": lambda payload, _: np.zeros(10),
    "halved": lambda payload, _: 0.5 * payload,
    **{f"gains {kg} kg": lambda payload, _, kg=kg: payload * (1.0 + kg / payload[0]) for kg in (0.1, 0.6)},
}


def record(
    robot: RobotModel, seed: int, seconds: float, event: Event | None = None, noise: Noise = Noise.UNIFORM
) -> tuple[SampleBlock, float]:
    """Samples with a payload that changes, and when it does [s]."""
    rng = np.random.default_rng(seed)
    theta = sample_parameters(robot, rng, seed % 2 == 0)
    if event is None:
        before, other = (sample_payload(robot.payload_prior, rng) for _ in range(2))
        after = before + rng.uniform(0.05, 0.5) * (other - before)
    else:
        before = load_payload(robot, DUMBBELL)
        after = event(before, rng)
    change = rng.uniform(0.2, 0.8) * seconds
    plan = random_motion(robot, robot.home, rng, 3.0)

    def motion(times: np.ndarray) -> tuple[np.ndarray, ...]:
        return plan.sample(np.mod(times, 3.0))

    times = PERIOD * np.arange(round(seconds / PERIOD) + 1)
    q, v, a = motion(times)
    stiction, torques = rng.uniform(-1.0, 1.0, robot.n), []
    for payload in (before, after):
        arm = TrueArm(robot, theta, payload, stiction, EstimatorSettings().stiction_speed)
        is_held = robot.sensors.effort_is_held
        torques.append(arm.mean_torque(motion, times, PERIOD) if is_held else arm.torque(q, v, a))
    tau = np.where((times <= change)[:, None], *torques)
    return measure(SensorSimulation(robot.sensors, noise, seed), times, q, v, tau), change


def is_possible(problem: Problem) -> bool:
    """Whether any unknowns within their bounds agree with all rows, by HiGHS through scipy."""
    radii = np.concatenate([problem.radius, problem.delta_radius, problem.end_radii])
    matrix = scipy.sparse.hstack([problem.y, problem.b, problem.end_matrix])
    matrix = scipy.sparse.diags_array(1.0 / problem.error) @ matrix @ scipy.sparse.diags_array(radii)
    both = scipy.sparse.vstack([matrix, -matrix]).tocsr()
    limits = np.concatenate([problem.r / problem.error + 1.0, 1.0 - problem.r / problem.error])
    return linprog(np.zeros(radii.size), A_ub=both, b_ub=limits, bounds=(-1.0, 1.0), method="highs-ipm").status == 0


def first_impossible(robot: RobotModel, block: SampleBlock, least: int) -> int:
    """First window, not before ``least``, with which no unknowns agree with all rows."""
    settings = EstimatorSettings()
    unknowns = describe_unknowns(robot, settings)
    model = WindowModel(robot, settings, unknowns)
    windows, _ = SampleStream(robot, settings).add(block)
    parts = [build_rows(model, w) for w in windows]

    def holds(last: int) -> bool:
        return is_possible(build_problem(robot, Rows.stack(parts[: last + 1]), unknowns))

    low, high = least - 1, len(parts) - 1
    if holds(high):
        return NEVER
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def first_noticed(robot: RobotModel, block: SampleBlock) -> int:
    """First window with which the estimator notices."""
    estimator, taken = StreamingEstimator(robot, EstimatorSettings(detect_payload_change=True)), 100
    for start in range(0, len(block), taken):
        if any("restarted" in text for text in estimator.add(block.slice(start, start + taken))):
            return start // taken - 1
    return NEVER


def compare_with_limit(robot: RobotModel, seeds: range, seconds: float) -> bool:
    """Print how much later than possible the bounds notice; return whether it is never too late or too early."""
    rows = []
    for seed in seeds:
        block, change = record(robot, seed, seconds)
        noticed = first_noticed(robot, block)
        allowed = first_impossible(robot, block, int(change / EstimatorSettings().window_duration))
        late = noticed - allowed if max(noticed, allowed) < NEVER else NEVER * np.sign(noticed - allowed)
        rows.append([seed, change, noticed, allowed, int(late)])
        print(f"seed {seed}: change at {change:.2f} s, noticed {noticed}, allowed {allowed}", flush=True)
    found = [row for row in rows if row[3] < NEVER]
    late = np.array([row[4] for row in found])
    counts = [len(rows), len(found), *(int(np.sum(late == k)) for k in (0, 1)), int(np.sum(late < 0))]
    columns = ["trials", "contradict", "same window", "one later", "earlier", "later than that"]
    title = f"{robot.name}, any payloads: windows by which a change is noticed later than possible"
    print_table(columns, [[*counts, int(np.sum(late > 1))]], title)
    false = [row[0] for row in rows if row[2] * EstimatorSettings().window_duration < row[1] - 0.2]
    print(f"noticed before the change: {false}")
    return not false and not np.any(late > 1)


def watch(robot: RobotModel, block: SampleBlock) -> tuple[float, float]:
    """Return when an alarm is raised, and when a change is told before one [s]; infinite: never."""
    estimator, taken = StreamingEstimator(robot, EstimatorSettings()), 100
    told = np.inf
    for start in range(0, len(block), taken):
        if not estimator.add(block.slice(start, start + taken)):  # both events are notices
            continue
        estimate, now = estimator.estimate(), PERIOD * min(start + taken, len(block))
        if estimate.alarm is not None:
            return now, told
        if estimate.payload_change and np.isinf(told):
            told = now
    return np.inf, told


def tell_events(robot: RobotModel, seeds: range, seconds: float) -> bool:
    """Print which events are noticed, by whom, and how soon; return whether nothing is noticed before it happens."""
    rows, is_good = [], True
    for name, event in EVENTS.items():
        delays: dict[str, list[float]] = {"certain": [], "told": []}
        nothing, early = 0, 0
        for seed in seeds:
            block, change = record(robot, seed, seconds, event, list(Noise)[seed % len(Noise)])
            alarm, told = watch(robot, block)
            when = np.inf if name == "nothing" else change
            early += min(alarm, told) < when < np.inf or (np.isinf(when) and min(alarm, told) < np.inf)
            nothing += np.isinf(min(alarm, told))
            if told < alarm:
                delays["told"].append(told - change)
            elif alarm < np.inf:
                delays["certain"].append(alarm - change)
            print(f"{name}, seed {seed}: {change:.2f} s, alarm {alarm:.1f} s, told {told:.1f} s", flush=True)
        is_good &= not early
        row: list[object] = [name, len(seeds)]
        for found in delays.values():
            row += [len(found), f"{np.median(found):.1f}" if found else "-", f"{max(found):.1f}" if found else "-"]
        rows.append([*row, nothing, early])
    columns = ["what happens", "trials", "certain", "median [s]", "longest [s]", "told", "median [s]", "longest [s]"]
    title = f"{robot.name}, a 1.81 kg dumbbell: what is noticed, and how long after it happens"
    print_table([*columns, "not noticed", "before it happens"], rows, title)
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", nargs="*", default=["kinova_gen3_2f85", "kuka_lbr_iiwa14"], help="names of robots")
    parser.add_argument("--trials", type=int, default=20, help="number of trials")
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of the data [s]")
    parser.add_argument("--only", choices=["limit", "events"], help="one of the tables alone")
    arguments = parser.parse_args()
    print(describe_machine(), flush=True)
    seeds, is_good = range(arguments.first, arguments.first + arguments.trials), True
    for name in arguments.robot:
        robot = load_robot(name)
        if arguments.only != "limit":
            is_good &= tell_events(robot, seeds, arguments.seconds)
        if arguments.only != "events":
            is_good &= compare_with_limit(robot, seeds, arguments.seconds)
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
