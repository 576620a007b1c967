"""Plans certified with the proven tracking bound, after weighing.

``python bench/bench_certified_planner.py [--states N] [--plans N] [--deadline S] [--kinds ...] [--obstacles ...]``.
Every problem draws a payload of the prior, a posture and obstacles such that the arm can be held there for certain,
weighs the payload at rest (one second of what sensors with their allowed errors read), and plans a chain of motions
with the robust controller's bound and the verifier, as the nodes do. The box of the payload stays what weighing has
left of it; in an identification it shrinks with every plan (see bench_closed_loop.py). A safe motion exists in
every problem, to stay. Times are those until a plan was certified for the first time, and until it was returned: what
is left of the time goes into better plans where the condition number is poor.

Priors: "gripper" = nothing is held; "held object" = the default; "Table I" = last body and payload together in the box
of SAFE-ID's Table I, the payload being a body of its own. Baseline in the same run: the same problems with constant
tracking errors that nobody has proven, as in bench_planner.py.

What limits the condition number: the same chains by the same search, with errors that nobody has proven, either none at
all ("no errors": what torque limits allow with the worst payload of the box) or throughout those of the arm held at the
start ("errors at rest": what is lost beyond is the growth of errors in motion and the search that has to guess it).
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import contextlib
import time
from dataclasses import dataclass, field, replace

import numpy as np
from _table import describe_machine, print_table
from bench_planner import Case, ConstantBound, ConstantProver, paper_scene, random_obstacles

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import PlanRejected, VerifierSettings
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import PayloadPrior, RobotModel
from sysid_ros.core.model.sampling import sample_payload
from sysid_ros.core.planning.candidates import RobustProver
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanRequest
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

WEIGHING = 1.0  # [s]
FIRST_LIMIT = 10.0  # [s]; the nodes give a plan from rest this long
LIMITS = {"no errors": 0.0, "errors at rest": 1.0}  # shares of the errors of the arm held at the start
MOST_MOVES = 3
"""Certified moves from rest, to where more can be proven, that a problem may take before its chain."""


class RestProver(RobustProver):
    """The verifier, with a share of the errors of the arm held at the start, however it moves."""

    def __init__(self, share: float):
        super().__init__(VerifierSettings())
        self._share, self._found = share, None

    def bound(self, request: PlanRequest, trajectory: Trajectory) -> ConstantBound:
        if request.predecessor is None:
            still = np.zeros(request.start.size)
            held = request.assumptions.bound(BezierTrajectory(request.start, still, still, request.start, 1.0))
            self._found = ConstantBound(*(self._share * x for x in (held.position, held.velocity, held.torque)))
        return self._found


@dataclass
class Found:
    """What came of the problems of one prior and number of obstacles."""

    problems: int = 0
    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    certified: list[float] = field(default_factory=list)
    constant: list[float] = field(default_factory=list)
    found: int = 0
    asked: int = 0
    whole: int = 0
    moves: int = 0
    ends: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def prior_of(kind: str) -> RobotModel:
    """The robot with one of the priors."""
    robot = load_robot()
    if kind == "gripper":
        return Case.of(kind).robot
    if kind == "held object":
        return robot
    table, body = robot.prior("safe_id_table_1"), robot.inertial_slice(robot.n)
    lower = table.box.lower - robot.theta_box.upper[body]
    lower[0] = max(lower[0], 0.0)  # the payload is a body
    box = Box(lower, table.box.upper - robot.theta_box.lower[body])
    return replace(robot, payload_prior=replace(robot.payload_prior, box=box, shape=None))


def weigh(robot: RobotModel, q: np.ndarray, payload: np.ndarray, seed: int) -> Assumptions:
    """What is known of the payload after the arm has been held at q for a while."""
    n, count = robot.n, round(WEIGHING / 1e-3)
    sensor = SensorSimulation(robot.sensors, Noise.UNIFORM, seed)
    balance = ArmDynamics(robot, robot.theta_nominal, payload).gravity(q) + robot.friction(robot.theta_nominal)[:, 3]
    rows = [sensor.measure(10**6 * k, q, np.zeros(n), balance) for k in range(1, count)]
    stamps = np.maximum.accumulate(np.array([row[0] for row in rows])) + np.arange(len(rows))
    block = SampleBlock(stamps, np.arange(len(rows)), *(np.array([row[i] for row in rows]) for i in (1, 2, 3)))
    estimator = StreamingEstimator(robot, EstimatorSettings())
    estimator.add(block)
    estimate = estimator.estimate()
    if not estimate.is_consistent:
        raise RuntimeError(estimate.alarm_text)
    return Assumptions.of_payload(robot, estimate.box, nominal=Assumptions.of_payload(robot).nominal)


def draw(
    robot: RobotModel, planner: CertifiedPlanner, kind: str, scene: Scene | None, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, Assumptions]:
    """A posture, obstacles and a payload such that the arm can stay there for certain."""
    limits, still = robot.limits, np.zeros(robot.n)
    lower, upper = np.maximum(limits.q_lower, -np.pi) + 0.05, np.minimum(limits.q_upper, np.pi) - 0.05
    while True:
        around = scene or Scene(random_obstacles(rng, count), ground_height=0.0)
        for _ in range(10):
            near = robot.home + rng.normal(scale=0.4, size=robot.n)
            q = np.clip(near if rng.integers(0, 2) else rng.uniform(lower, upper), lower, upper)
            payload = np.zeros(10) if kind == "gripper" else draw_payload(robot, rng)
            seed = int(rng.integers(1e9))
            nothing = Assumptions(robot, (robot.theta_box, Box(np.zeros(10), np.zeros(10))), np.zeros(10))
            known = replace(nothing if kind == "gripper" else weigh(robot, q, payload, seed), scene=around)
            try:
                planner.certify(BezierTrajectory(q, still, still, q, 0.5), known)
            except (PlanRejected, BoundNotAvailable):
                continue
            return q, known


def draw_payload(robot: RobotModel, rng: np.random.Generator) -> np.ndarray:
    """A payload of the prior, (10,)."""
    prior = robot.payload_prior
    return sample_payload(prior if prior.shape is not None else PayloadPrior(prior.box, prior.nominal), rng)


def solve(planner: CertifiedPlanner, case: tuple, plans: int, deadline: float, got: Found) -> None:
    """Plans a chain and notes what came of it; certified moves to where it can begin are not among its plans."""
    q, known = case
    got.problems += 1
    before, information, number = None, np.zeros((10, 10)), 0
    for _ in range(plans + MOST_MOVES):
        wanted = PlanRequest(
            known,
            start=q,
            predecessor=before,
            takeover_time=1.5 if before else 0.0,
            information=information,
            is_last=number == plans - 1,
            time_limit=deadline if before else FIRST_LIMIT,
        )
        begin = time.monotonic()
        got.asked += 1
        try:
            plan = planner.plan(wanted)
        except PlanFailure as failure:
            got.reasons.append(str(failure))
            return
        finally:
            (got.later if before else got.first).append(time.monotonic() - begin)
        got.found += 1
        if plan.statistics is None:
            q = plan.trajectory.end
            got.moves += 1
            continue
        got.certified.append(plan.statistics.seconds["first"])
        before, information, number = plan, information + plan.information_gained, number + 1
        if number == plans:
            got.whole += 1
            got.ends.append(plan.condition_number)
            return
    got.reasons.append(f"no chain after {MOST_MOVES} moves")


def time_constant(planner: CertifiedPlanner, case: Case, q: np.ndarray, known: Assumptions, deadline: float) -> float:
    """Time of a plan from rest with constant tracking errors [s]."""
    planner.prover, begin = ConstantProver(case), time.monotonic()
    with contextlib.suppress(PlanFailure):
        planner.plan(PlanRequest(known, start=q, time_limit=deadline))
    return time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=12, help="problems per prior and number of obstacles")
    parser.add_argument("--plans", type=int, default=4, help="plans of a chain")
    parser.add_argument("--deadline", type=float, default=1.5, help="time a plan may take while the arm moves [s]")
    parser.add_argument("--kinds", nargs="+", default=["gripper", "held object", "Table I"])
    parser.add_argument("--obstacles", nargs="+", default=["0", "5", "10", "paper"])
    parser.add_argument("--reasons", action="store_true", help="print why there was no plan")
    arguments = parser.parse_args()
    print(describe_machine())
    rows, every = [], []
    for kind in arguments.kinds:
        robot = prior_of(kind)
        planner, constant = CertifiedPlanner(robot), CertifiedPlanner(robot)
        case = replace(Case.of("held object"), robot=robot)
        for name in arguments.obstacles:
            got, limits, rng = Found(), {limit: Found() for limit in LIMITS}, np.random.default_rng(7)
            scene = paper_scene() if name == "paper" else None
            for _ in range(arguments.states):
                problem = draw(robot, planner, kind, scene, 0 if scene else int(name), rng)
                solve(planner, problem, arguments.plans, arguments.deadline, got)
                got.constant.append(time_constant(constant, case, *problem, arguments.deadline))
                for limit, share in LIMITS.items():
                    other = CertifiedPlanner(robot, prover=RestProver(share))
                    solve(other, problem, arguments.plans, arguments.deadline, limits[limit])
            every.append(got)
            without = [np.median(limit.ends or [np.inf]) for limit in limits.values()]
            rows.append([
                kind, name, np.median(got.certified), np.median(got.later), np.percentile(got.later, 99),
                np.median(got.constant), f"{got.found} of {got.asked}", f"{got.whole} of {got.problems}",
                np.median(got.ends or [np.inf]), np.max(got.ends or [np.inf]), *without,
            ])  # fmt: skip
            if arguments.reasons:
                print(*(f"  {kind}, {name}: {reason}" for reason in got.reasons), sep="\n")
    titles = ["prior", "obstacles", "certified [s]", "in motion [s]", "p99 [s]", "baseline [s]", "plans found",
              "whole chains", f"cond after {arguments.plans}", "worst", *LIMITS]  # fmt: skip
    print_table(titles, rows, "Median time until a plan was certified, and until it was returned while the arm moved")
    for text, name in (("until the first certificate", "certified"), ("in motion", "later"), ("from rest", "first")):
        times = np.concatenate([getattr(got, name) for got in every])
        quantiles = ", ".join(f"{label} {np.percentile(times, q):.3f} s" for label, q in (("median", 50), ("p99", 99)))
        print(f"{len(times)} plans, {text}: {quantiles}")
    print(f"{sum(got.moves for got in every)} of the plans were moves from rest to where a chain can begin")


if __name__ == "__main__":
    main()
