"""Time and conservatism of the verifier.

Run: ``python bench/bench_verifier.py [--plans 60] [--robot kinova_gen3_2f85]``. The first table is what users wait for:
the whole check of a plan from rest, with the payload known to a twentieth of the prior: its tracking bound, and the
proof with bounds of the errors in stops, which the rest of the page assumes. Then random 3 s plans in scenes with
ground: half start in motion, half carry an unknown payload and half one that is known to 20 %. *Safe* means that dense
simulation (every 2 ms, random errors inside their bounds, exact worst case of the torque over the boxes, stops every
10 ms) finds nothing. Target: 50 ms per plan on one core. Baselines: the same bounds on 30 and on 150 equal pieces
without division, and the check at samples, which proves nothing.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from dataclasses import dataclass, replace

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
import pinocchio as pin  # noqa: E402
from _table import describe_machine, print_table  # noqa: E402

from sysid_ros.core.certification.assumptions import Assumptions  # noqa: E402
from sysid_ros.core.certification.reproof import Reprover  # noqa: E402
from sysid_ros.core.certification.stop_model import (  # noqa: E402
    LimitKind,
    PlanRejected,
    VerifierSettings,  # noqa: E402
)
from sysid_ros.core.certification.verify import verify  # noqa: E402
from sysid_ros.core.collision.clearance import build_scene_model, pair_distances, sphere_centers  # noqa: E402
from sysid_ros.core.collision.scene import Obstacle, Scene  # noqa: E402
from sysid_ros.core.common.box import Box  # noqa: E402
from sysid_ros.core.excitation.model import TorqueDemand  # noqa: E402
from sysid_ros.core.model.loader import load_robot  # noqa: E402
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable  # noqa: E402
from sysid_ros.core.trajectories.braking import slowdown_states  # noqa: E402
from sysid_ros.core.trajectories.families import BezierTrajectory  # noqa: E402

DURATION, BRAKE_TIME, GROUND = 3.0, 0.5, -0.05
SETTINGS = {
    "verifier": VerifierSettings(brake_times=(BRAKE_TIME,)),
    "30 equal pieces": VerifierSettings(brake_times=(BRAKE_TIME,), piece=0.1, shortest_piece=0.1),
    "150 equal pieces": VerifierSettings(brake_times=(BRAKE_TIME,), piece=0.02, shortest_piece=0.02),
}


@dataclass(frozen=True)
class Errors:
    position: np.ndarray
    velocity: np.ndarray
    torque: np.ndarray


@dataclass(frozen=True)
class Problem:
    plan: BezierTrajectory
    boxes: tuple[Box, Box]
    errors: Errors
    scene: Scene


def random_box(rng, name) -> Obstacle:
    """A turned box that is not where the base stands."""
    while True:
        center, half = rng.uniform([-0.9, -0.9, 0.0], [0.9, 0.9, 1.1]), rng.uniform(0.03, 0.15, 3)
        box = Obstacle(name, center, half, pin.exp3(rng.normal(size=3)))
        if box.distance(np.array([[0.0, 0.0, height] for height in (0.05, 0.15, 0.3)])).min() > 0.15:
            return box


def random_problem(robot, rng, obstacles: int) -> Problem:
    lower, upper = np.maximum(robot.limits.q_lower, -2.5) + 0.1, np.minimum(robot.limits.q_upper, 2.5) - 0.1
    q0 = np.clip(robot.home + rng.uniform(-0.5, 0.5, robot.n), lower, upper)
    q1 = np.clip(q0 + rng.uniform(-0.9, 0.9, robot.n), lower, upper)
    moving = rng.integers(0, 2)
    v0, a0 = moving * rng.uniform(-0.4, 0.4, robot.n), moving * rng.uniform(-0.8, 0.8, robot.n)
    box, nominal = robot.payload_prior.box, 0.7 * robot.payload_prior.nominal
    if rng.integers(0, 2):
        box = Box.around(nominal, 0.2 * np.abs(nominal) + np.array([0.05, *[0.005] * 3, *[0.002] * 6]))
    errors = Errors(np.full(robot.n, 0.01), np.full(robot.n, 0.03), np.full(robot.n, 0.3))
    scene = Scene(tuple(random_box(rng, f"box {k}") for k in range(obstacles)), GROUND)
    return Problem(BezierTrajectory(q0, v0, a0, q1, DURATION), (robot.theta_box, box), errors, scene)


def simulate(robot, problem: Problem, rng) -> dict[str, float]:
    """The smallest margins dense simulation finds, by kind of limit."""
    times = np.arange(0.0, DURATION, 0.002)
    q, v, a = problem.plan.sample(times)
    limits, errors, scene = robot.limits, problem.errors, problem.scene
    demand = TorqueDemand(robot, *problem.boxes, errors.torque)
    stops = slowdown_states((q[::5], v[::5], a[::5]), BRAKE_TIME, 15)
    margins = {
        "position": (np.minimum(q - limits.q_lower, limits.q_upper - q) - errors.position).min(),
        "velocity": (1.0 - (np.abs(v) + errors.velocity) / limits.v_max).min(),
        "acceleration": (1.0 - np.abs(a) / limits.a_max).min(),
        "torque": (1.0 - demand.evaluate(q, v, a) / limits.tau_max).min(),
        "braking torque": (1.0 - demand.evaluate(*stops) / limits.tau_max).min(),
        "self-collision": np.inf,
        "ground": np.inf,
    }
    collision = build_scene_model(robot, scene)
    radii = np.array([sphere.radius for sphere in collision.spheres])
    for _ in range(4):
        moved = q + errors.position * rng.choice([-1.0, 1.0], q.shape)
        centers = sphere_centers(robot, collision.spheres, moved)
        points, own = centers[:, collision.movable], radii[collision.movable]
        found = {
            "self-collision": pair_distances(centers, collision.spheres, collision.pairs).min(),
            "ground": (points[..., 2] - own).min() - GROUND,
        }
        if scene.obstacles:
            found["obstacle"] = min((box.distance(points) - own).min() for box in scene.obstacles)
        margins |= {kind: min(value, margins.get(kind, np.inf)) for kind, value in found.items()}
    return margins


def bench_whole_check(robot, rng, count: int) -> None:
    """Time of the tracking bound, of the proof with bounds in stops, and of both, as planner and driver make them."""
    prior, rest, rows = robot.payload_prior, np.zeros(robot.n), []
    box = Box.around(prior.nominal, 0.05 * prior.box.radius).intersect(prior.box)
    for obstacles in (0, 5, 10):
        times, is_certified = [], []
        for _ in range(count):
            drawn = random_problem(robot, rng, obstacles)
            way = drawn.plan.end - drawn.plan.start
            plan = BezierTrajectory(robot.home, rest, rest, robot.home + 0.3 * way, DURATION)
            assumptions = Assumptions.of_payload(robot, box, scene=drawn.scene)
            begin = time.perf_counter()
            middle = end = np.nan
            try:
                bound = assumptions.bound(plan)
                middle = time.perf_counter()
                found = verify(assumptions, plan, bound, VerifierSettings())
                end = time.perf_counter()
                is_certified.append(found.has_stop_bounds)
            except (PlanRejected, BoundNotAvailable):
                is_certified.append(False)
            if is_certified[-1]:
                times.append([1e3 * (middle - begin), 1e3 * (end - middle), 1e3 * (end - begin)])
        shown = [f"{np.percentile(column, share):.4g}" for column in np.array(times).T for share in (50, 99)]
        rows.append([obstacles, count, sum(is_certified), *shown])
    parts = [
        f"{part}, {share} [ms]" for part in ("tracking bound", "proof with stops", "both") for share in ("p50", "p99")
    ]
    title = f"{robot.name}: the whole check of a plan that is certified, with bounds of the errors in stops"
    print_table(["obstacles", "plans", "certified", *parts], rows, title)


def timed(function) -> tuple[float, object, LimitKind | None]:
    """Time [ms], what was found, and the kind of limit that was broken."""
    begin = time.perf_counter()
    try:
        found = function()
        return 1e3 * (time.perf_counter() - begin), found, None
    except PlanRejected as rejection:
        return 1e3 * (time.perf_counter() - begin), None, rejection.limit


def check(robot, problem: Problem) -> dict[str, tuple[float, object, str]]:
    assumptions = assume(robot, problem, problem.scene)
    arguments = (assumptions, problem.plan, problem.errors)
    return {name: timed(lambda s=s: verify(*arguments, s)) for name, s in SETTINGS.items()}


def assume(robot, problem: Problem, scene: Scene) -> Assumptions:
    return Assumptions(robot, problem.boxes, robot.payload_prior.nominal, scene)


def add_gaps(gaps: dict[str, list[float]], truths, verifications) -> None:
    """Differences of margins, by name."""
    for truth, found in zip(truths, verifications, strict=True):
        for name, margin in found.margins.items() if found is not None else ():
            gaps.setdefault(name.value, []).append(truth[name.value] - margin.value)


def bench_edges(robot, problems, truths) -> None:
    """Share of plans that are accepted, and the time it takes, where the limits leave them hardly any room."""
    rows = []
    for what, slacks in (("torque", (0.02, 0.005, 0.001)), ("distance", (0.01, 0.003, 0.001))):
        for slack in slacks:
            for method, settings in SETTINGS.items():
                results = []
                for problem, truth in zip(problems, truths, strict=True):
                    scene, room = problem.scene, min(truth["torque"], truth["braking torque"])
                    changed = replace(settings, torque_fraction=min(1.0, 1.0 - room + slack))
                    if what == "distance":
                        gap = min(truth[kind] for kind in ("self-collision", "ground", "obstacle"))
                        scene, changed = replace(scene, clearance=max(0.0, gap - slack)), settings
                    arguments = (assume(robot, problem, scene), problem.plan, problem.errors, changed)
                    results.append(timed(lambda a=arguments: verify(*a)))
                accepted = [duration for duration, _, kind in results if not kind]
                median, largest = (np.median(accepted), max(accepted)) if accepted else (np.nan, np.nan)
                room = f"{100 * slack:g} %" if what == "torque" else f"{1e3 * slack:g} mm"
                rows.append([what, room, method, len(results), 100.0 * len(accepted) / len(results), median, largest])
    columns = ["limit", "room left", "method", "safe plans", "accepted [%]", "median [ms]", "max [ms]"]
    title = "At the edge: limits moved to what dense simulation reaches plus the room"
    print_table(columns, rows, title)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=60, help="plans per number of obstacles")
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    options = parser.parse_args()
    print(describe_machine())
    robot, rng = load_robot(options.robot), np.random.default_rng(0)
    for _ in range(3):
        check(robot, random_problem(robot, rng, 2))  # warm up
    Reprover(robot).warm_up()
    bench_whole_check(robot, np.random.default_rng(1), options.plans // 2)
    speed, conservatism, gaps = [], [], {}
    for obstacles in (0, 5, 10):
        problems = [random_problem(robot, rng, obstacles) for _ in range(options.plans)]
        truths = [simulate(robot, problem, rng) for problem in problems]
        results = [check(robot, problem) for problem in problems]
        is_safe = np.array([min(truth.values()) >= 0.0 for truth in truths])
        add_gaps(gaps, truths, [result["verifier"][1] for result in results])
        if obstacles == 5:
            edge = [pair for pair, safe in zip(zip(problems, truths, strict=True), is_safe, strict=True) if safe]
        for method in results[0]:
            durations = np.array([result[method][0] for result in results])
            accepted = np.array([not result[method][2] for result in results])
            pieces = [result[method][1].pieces for result in results if hasattr(result[method][1], "pieces")]
            row = [np.median(durations[accepted]), np.percentile(durations, 99), durations.max()]
            speed.append([obstacles, method, *row, int(np.median(pieces)) if pieces else "-"])
            wrong = Counter(result[method][2] for result, safe in zip(results, is_safe, strict=True) if safe)
            reasons = ", ".join(f"{count} {kind.value}" for kind, count in wrong.most_common() if kind)
            refused, missed = int((is_safe & ~accepted).sum()), int((accepted & ~is_safe).sum())
            share = 100.0 * refused / max(1, is_safe.sum())
            conservatism.append([obstacles, method, int(is_safe.sum()), refused, share, reasons or "-", missed])
    columns = ["obstacles", "method", "median, accepted [ms]", "99 %, all [ms]", "max [ms]", "pieces, median"]
    print_table(columns, speed, f"{robot.name}, {options.plans} plans each: the proof alone, errors in stops assumed")
    columns = ["obstacles", "method", "safe", "of these rejected", "share [%]", "for", "accepted but not safe"]
    print_table(columns, conservatism, f"{robot.name}: what dense simulation finds safe, and what is rejected")
    rows = [[kind, len(gap), np.median(gap), np.percentile(gap, 95), np.max(gap)] for kind, gap in gaps.items()]
    columns = ["margin", "plans", "median", "95 %", "max"]
    print_table(columns, rows, "Accepted plans: by how much the verifier's margin is below that of dense simulation")
    bench_edges(robot, *zip(*edge, strict=True))


if __name__ == "__main__":
    main()
