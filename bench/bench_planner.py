"""Receding-horizon planner over random starts and obstacles.

``python bench/bench_planner.py [--states N] [--chains N] [--deadline S] [--long N] [--kinds ...]``. Half of the starts
are at rest, half in motion: the states at t_p of plans from such starts. Every candidate is verified over continuous
time. The tracking errors are constants (0.01 rad, 0.03 rad/s, 4 % of the torque limits), the same for all planners;
with ``--bound controller`` the chains from home are planned with the robust controller's bound too. Where a planner
finds nothing, many random motions are verified to see whether a safe motion exists at all: the feasibility rate is the
share of the problems with a safe motion in which the planner found one.

Baselines in the same run: the best certified one of some random k, and the same problem solved with finite differences
(SLSQP, from the best of the same random motions).

Boxes of parameters: "gripper" = nothing is held, the last body is known as well as the other links; "held object" =
the default prior; "Table I" = the box of SAFE-ID's Table I for the whole end effector. "scene" is a stand-in for those
of the paper, of which no sizes are published: ground, table, a low and a high obstacle, two side walls and one behind.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np
from _table import describe_machine, print_table
from scipy.optimize import minimize

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import PlanRejected, VerifierSettings
from sysid_ros.core.certification.verify import Verification, verify
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.candidates import RobustProver
from sysid_ros.core.planning.constraints import AssumedErrors, Margins
from sysid_ros.core.planning.costs import condition_number
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.problem import NoMotion, PlannerModel, PlanProblem
from sysid_ros.core.planning.request import PlanFailure, PlanRequest, RecedingSettings
from sysid_ros.core.trajectories.families import BezierTrajectory

RANDOM_DRAWS = 20
ERRORS = {"position": 0.01, "velocity": 0.03, "torque": 0.04}  # [rad], [rad/s], share of the limits


@dataclass(frozen=True)
class Case:
    """A robot with boxes of parameters."""

    name: str
    robot: RobotModel
    boxes: tuple[Box, Box]
    payload: np.ndarray

    @classmethod
    def of(cls, name: str) -> Case:
        robot = load_robot()
        box = robot.theta_box
        if name == "gripper":
            nothing = np.zeros(10)
            return cls(
                name,
                replace(robot, payload_prior=replace(robot.payload_prior, spheres=())),
                (box, Box(nothing, nothing)),
                nothing,
            )
        if name == "held object":
            return cls(name, robot, (box, robot.payload_prior.box), robot.payload_prior.nominal)
        prior = robot.prior("safe_id_table_1")
        lower, upper = box.lower.copy(), box.upper.copy()
        lower[robot.inertial_slice(robot.n)] = upper[robot.inertial_slice(robot.n)] = 0.0
        held = replace(prior, spheres=robot.payload_prior.spheres)
        return cls(name, replace(robot, payload_prior=held), (Box(lower, upper), prior.box), prior.nominal)

    @property
    def errors(self) -> AssumedErrors:
        ones = np.ones(self.robot.n)
        torque = ERRORS["torque"] * self.robot.limits.tau_max
        return AssumedErrors(ERRORS["position"] * ones, ERRORS["velocity"] * ones, torque, is_measured=True)

    def verify(self, trajectory: BezierTrajectory, errors: AssumedErrors, scene: Scene) -> Verification:
        return verify(self.assumptions(scene), trajectory, errors)

    def assumptions(self, scene: Scene) -> Assumptions:
        return Assumptions(self.robot, self.boxes, self.payload, scene)

    def is_safe(self, trajectory: BezierTrajectory, scene: Scene) -> bool:
        try:
            self.verify(trajectory, self.errors, scene)
        except PlanRejected:
            return False
        return True

    def request(
        self, start: np.ndarray | CertifiedPlan, information: np.ndarray, scene: Scene, is_last: bool = False, **more
    ) -> PlanRequest:
        """From rest in a posture, or taking over from a plan."""
        assumptions, more = self.assumptions(scene), {"information": information, "is_last": is_last, **more}
        if isinstance(start, CertifiedPlan):
            return PlanRequest(assumptions, predecessor=start, takeover_time=RecedingSettings().planning_time, **more)
        return PlanRequest(assumptions, start=start, **more)


@dataclass(frozen=True)
class ConstantBound:
    """Tracking errors that are the same for every motion, whatever was before."""

    position: np.ndarray
    velocity: np.ndarray
    torque: np.ndarray
    settling_time: float = 0.0

    def until(self, time: float) -> None:
        return None


class ConstantProver(RobustProver):
    """The verifier, with constant tracking errors."""

    def __init__(self, case: Case):
        super().__init__(VerifierSettings())
        self._bound = ConstantBound(case.errors.position, case.errors.velocity, case.errors.torque)

    def bound(self, request: PlanRequest, trajectory: BezierTrajectory) -> ConstantBound:
        return self._bound


def paper_scene() -> Scene:
    """Ground and six boxes [m]."""
    boxes = (
        ("table", (0.55, 0.0, 0.05), (0.2, 0.35, 0.05)),
        ("low obstacle", (0.35, 0.45, 0.125), (0.1, 0.1, 0.125)),
        ("high obstacle", (0.6, -0.45, 0.3), (0.08, 0.08, 0.3)),
        ("wall left", (0.0, 0.95, 0.6), (1.0, 0.05, 0.6)),
        ("wall right", (0.0, -0.95, 0.6), (1.0, 0.05, 0.6)),
        ("wall behind", (-0.7, 0.0, 0.6), (0.05, 0.9, 0.6)),
    )
    return Scene(tuple(Obstacle(name, np.array(c), np.array(h)) for name, c, h in boxes), ground_height=0.0)


def random_obstacles(rng: np.random.Generator, count: int) -> tuple[Obstacle, ...]:
    """Boxes within reach, turned at random, that leave the base free."""
    found: list[Obstacle] = []
    while len(found) < count:
        center = rng.uniform([-0.9, -0.9, 0.0], [0.9, 0.9, 1.1])
        axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        box = Obstacle(f"box {len(found)}", center, rng.uniform(0.03, 0.12, 3), axes)
        if box.distance(np.array([[0.0, 0.0, z] for z in (0.0, 0.1, 0.2, 0.3)])).min() > 0.1:
            found.append(box)
    return tuple(found)


def random_problem(case: Case, rng: np.random.Generator, obstacles: int) -> tuple[np.ndarray, Scene]:
    """A posture in which the arm can stand still, and obstacles around it."""
    limits, robot = case.robot.limits, case.robot
    lower, upper = np.maximum(limits.q_lower, -np.pi), np.minimum(limits.q_upper, np.pi)
    while True:
        scene = Scene(random_obstacles(rng, obstacles), ground_height=0.0)
        for _ in range(10):
            # Half of them near a useful posture: anywhere, few can hold the worst payload of Table I.
            near = robot.home + rng.normal(scale=0.4, size=robot.n)
            q = np.clip(near if case.name == "Table I" else rng.uniform(lower, upper), lower + 0.05, upper - 0.05)
            still = np.zeros(robot.n)
            if case.is_safe(BezierTrajectory(q, still, still, q, 0.3), scene):
                return q, scene


def random_best(case: Case, model: PlannerModel, request: PlanRequest, draws: int, seed: int) -> tuple[float, int]:
    """Condition number of the best certified one of random motions (inf if none), and how many were certified."""
    try:
        problem = PlanProblem(model, request, case.errors, Margins.of(model.settings, case.robot.n))
    except NoMotion:
        return np.inf, 0
    k = np.random.default_rng(seed).uniform(-1.0, 1.0, (draws, case.robot.n))
    information = problem.cost.information(problem.space.offsets(k))
    safe = [i for i in range(draws) if case.is_safe(problem.trajectory(k[i]), request.assumptions.scene)]
    return min((condition_number(information[i]) for i in safe), default=np.inf), len(safe)


def has_safe_motion(case: Case, model: PlannerModel, request: PlanRequest, draws: int) -> bool:
    """Whether any of many random motions, small ones among them, can be verified."""
    try:
        problem = PlanProblem(
            model,
            request,
            case.errors,
            Margins.of(
                RecedingSettings(
                    velocity_fraction=1.0,
                    acceleration_fraction=1.0,
                    torque_fraction=1.0,
                    position_margin=0.0,
                    distance_margin=0.0,
                ),
                case.robot.n,
            ),
        )
    except NoMotion:
        return False
    rng = np.random.default_rng(0)
    k = (
        problem.minimum_acceleration
        + rng.uniform(-1.0, 1.0, (draws, case.robot.n)) * rng.uniform(0.0, 1.0, (draws, 1)) ** 2
    )
    k = np.clip(k, -1.0, 1.0)
    worst = np.concatenate(
        [
            problem.constraints().evaluate(problem.space.offsets(part)).worst
            for part in np.array_split(k, max(draws // 64, 1))
        ]
    )
    return any(case.is_safe(problem.trajectory(k[i]), request.assumptions.scene) for i in np.argsort(worst)[:30])


def finite_differences(case: Case, model: PlannerModel, request: PlanRequest) -> tuple[float, float]:
    """Condition number (inf if not certified) and time of SLSQP with finite differences on the same problem."""
    begin = time.perf_counter()
    try:
        problem = PlanProblem(model, request, case.errors, Margins.of(model.settings, case.robot.n))
    except NoMotion:
        return np.inf, time.perf_counter() - begin
    start = problem.first_starts(None)[0]
    constraints = problem.constraints()
    solution = minimize(
        lambda k: float(problem.cost.evaluate(problem.space.offsets(k)[None])[0]),
        start,
        method="SLSQP",
        bounds=[(-1.0, 1.0)] * case.robot.n,
        constraints={"type": "ineq", "fun": lambda k: -constraints.evaluate(problem.space.offsets(k)[None]).worst},
        options={"maxiter": 20, "ftol": 1e-3},
    )
    k = np.clip(solution.x, -1.0, 1.0)
    is_safe = case.is_safe(problem.trajectory(k), request.assumptions.scene)
    information = problem.cost.information(problem.space.offsets(k)[None])[0]
    return condition_number(information) if is_safe else np.inf, time.perf_counter() - begin


class Runner:
    """Planner and baselines on one case."""

    def __init__(self, case: Case, deadline: float):
        self.case, self.deadline = case, deadline
        self.settings = RecedingSettings()
        self.planner = CertifiedPlanner(case.robot, self.settings, prover=ConstantProver(case))
        self.model = PlannerModel(case.robot, self.settings)
        self.model.torque.set_boxes(*case.boxes)

    def plan(self, request: PlanRequest) -> tuple[CertifiedPlan | None, float]:
        """A plan, None where there is none, and the time it took [s]."""
        begin = time.monotonic()
        try:
            plan = self.planner.plan(replace(request, time_limit=self.deadline))
        except PlanFailure:
            plan = None
        return plan, time.monotonic() - begin

    def chain(self, q: np.ndarray, scene: Scene, plans: int = 4, is_real: bool = False) -> list[CertifiedPlan]:
        """Plans one after the other from rest, with the controller's own bound or constant errors; fewer if one is not
        found."""
        self.planner.forget()
        self.planner.prover = RobustProver(VerifierSettings()) if is_real else ConstantProver(self.case)
        start, information, found = q, np.zeros((10, 10)), []
        for number in range(plans):
            plan, _ = self.plan(self.case.request(start, information, scene, number == plans - 1))
            if plan is None:
                break
            found.append(plan)
            start, information = plan, information + plan.information_gained
        return found


def measure(runner: Runner, obstacles: int, states: int, chains: int, long: int, rng: np.random.Generator) -> dict:
    """All numbers of one case and number of obstacles."""
    case, nothing = runner.case, np.zeros((10, 10))
    times, conditions, randoms, differences, waits = [], [], [], [], []
    found = possible = certified = drawn = 0
    start, scene = None, Scene()
    for index in range(states):
        if index % 2 == 0 or start is None:
            q, scene = random_problem(case, rng, obstacles)
            start = q
        runner.planner.forget()
        request = case.request(start, nothing, scene)
        plan, seconds = runner.plan(request)
        times.append(seconds)
        found += plan is not None
        possible += plan is not None or has_safe_motion(case, runner.model, request, long)
        conditions.append(np.inf if plan is None else plan.condition_number)
        if index % 4 == 0 or index % 4 == 3:
            best, count = random_best(case, runner.model, request, RANDOM_DRAWS, index)
            certified, drawn = certified + count, drawn + RANDOM_DRAWS
            randoms.append(best)
            by_differences, wait = finite_differences(case, runner.model, request)
            differences.append(by_differences)
            waits.append(wait)
        start = plan if index % 2 == 0 else None
    ends = []
    for _ in range(chains):
        plans = runner.chain(*random_problem(case, rng, obstacles))
        ends.append(plans[-1].condition_number if len(plans) == 4 else np.inf)
    return {
        "times": times, "found": found, "possible": possible, "conditions": conditions, "randoms": randoms,
        "certified": certified / max(drawn, 1), "differences": differences, "waits": waits, "ends": ends,
    }  # fmt: skip


def median(values: list[float]) -> float:
    return float(np.median(values)) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=18, help="start states per box and number of obstacles")
    parser.add_argument("--chains", type=int, default=3, help="chains of four plans per box and number of obstacles")
    parser.add_argument("--deadline", type=float, default=1.5, help="time a plan may take [s]")
    parser.add_argument("--long", type=int, default=1000, help="random motions that decide whether a safe one exists")
    parser.add_argument("--kinds", nargs="+", default=["gripper", "held object", "Table I"])
    parser.add_argument("--obstacles", nargs="+", type=int, default=[0, 5, 10])
    parser.add_argument("--bound", choices=["constant", "controller"], default="constant")
    arguments = parser.parse_args()
    print(describe_machine())
    rows, baselines, every = [], [], []
    for kind in arguments.kinds:
        runner = Runner(Case.of(kind), arguments.deadline)
        for obstacles in arguments.obstacles:
            rng = np.random.default_rng(obstacles)
            got = measure(runner, obstacles, arguments.states, arguments.chains, arguments.long, rng)
            every += got["times"]
            rows.append([
                kind, obstacles, median(got["times"]), float(np.percentile(got["times"], 99)),
                f"{got['found']} of {got['possible']}", median(got["conditions"]), median(got["ends"]),
                max(got["ends"], default=float("nan")),
            ])  # fmt: skip
            baselines.append([
                kind, obstacles, f"{100 * got['certified']:.0f} %", median(got["randoms"]),
                f"{np.isfinite(got['differences']).sum()} of {len(got['differences'])}",
                median(got["differences"]), median(got["waits"]),
            ])  # fmt: skip
    print_table(
        [
            "box",
            "obstacles",
            "time median [s]",
            "p99 [s]",
            "found / possible",
            "cond after 1",
            "after 4",
            "worst after 4",
        ],
        rows,
        f"{len(every)} plans: median {np.median(every):.3f} s, p99 {np.percentile(every, 99):.3f} s",
    )
    print_table(
        [
            "box",
            "obstacles",
            "random certified",
            f"best of {RANDOM_DRAWS}: cond",
            "differences certified",
            "cond",
            "time [s]",
        ],
        baselines,
        "Baselines on a half of the same problems (median condition number after 1 plan, inf: not certified)",
    )
    chains = []
    for kind in arguments.kinds:
        runner = Runner(Case.of(kind), arguments.deadline)
        for name, scene in (("free space", Scene()), ("scene", paper_scene())):
            for is_real in (False, True)[: 1 + (arguments.bound == "controller")]:
                plans = runner.chain(runner.case.robot.home, scene, is_real=is_real)
                waits = [plan.statistics.seconds["total"] for plan in plans]
                conditions = [plan.condition_number for plan in plans] + [np.inf] * 4
                errors = "controller" if is_real else "constant"
                chains.append([kind, name, errors, len(plans), *conditions[:4], max(waits, default=float("nan"))])
    print_table(
        ["box", "environment", "errors", "plans", "cond after 1", "2", "3", "4", "slowest plan [s]"],
        chains,
        "Four plans (7.5 s) from the home posture",
    )


if __name__ == "__main__":
    main()
