"""Size and computing time of the tracking bound.

Run: ``python bench/bench_tracking_bound.py [--robot kinova_gen3_2f85] [--random N] [--chains N]``. Targets: at most
1 deg, and 0.25 s of one core for a plan of 3 s. What the rows are compared with is in docs/theory/tracking_bound.md.
The second table has by how much slowly varying terms exceed what is estimated from the nodes about them: along the
motion, and in corners of the tube about it, where the differences along all joints add up; ``LoopBounds.allowance``
covers that. The third one has bounds, also in stops, in which these terms are bounded instead, so that all of them is
proven. The fourth one does that for chains of certified plans, made in the usual way after the payload was weighed, and
says how many certificates hold with such bounds; the fifth one has the time of a planner that only returns plans that
are proven so. The last one is like the second one for N random motions of each arm
that is shipped, with parameters and payloads known to a random degree: from any posture to another one or back, most of
them too fast for a wide box; the first few with a bound get the proven one, too.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass, fields

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from _table import print_table  # noqa: E402
from bench_certified_planner import FIRST_LIMIT, draw  # noqa: E402

from sysid_ros.core.certification.plan import CertifiedPlan  # noqa: E402
from sysid_ros.core.certification.recheck import BoundRechecker, recheck  # noqa: E402
from sysid_ros.core.common.box import Box  # noqa: E402
from sysid_ros.core.control import RobustSettings  # noqa: E402
from sysid_ros.core.control.model import ControlModel  # noqa: E402
from sysid_ros.core.model.loader import load_robot  # noqa: E402
from sysid_ros.core.model.robot import RobotModel  # noqa: E402
from sysid_ros.core.model.robot_files import available_robots  # noqa: E402
from sysid_ros.core.planning.planner import CertifiedPlanner  # noqa: E402
from sysid_ros.core.planning.request import PlanFailure, PlanRequest, RecedingSettings  # noqa: E402
from sysid_ros.core.tracking_bound import (  # noqa: E402
    BoundNotAvailable,
    TrackingBound,
    choose_payload,
    tracking_bound,
)
from sysid_ros.core.tracking_bound.model_terms import ModelTerms, TermStates, compute_model_terms  # noqa: E402
from sysid_ros.core.trajectories.base import Trajectory  # noqa: E402
from sysid_ros.core.trajectories.families import (  # noqa: E402
    BezierTrajectory,
    FourierTrajectory,
    rest_projection,
)

T_P, DURATION, RANGE, BRAKE_TIME = 1.5, 3.0, 0.26, 0.5
CHAIN = 4


def cases(robot: RobotModel) -> dict[str, tuple[tuple[Box, Box], np.ndarray]]:
    """Boxes and nominal payloads by name."""
    prior = robot.payload_prior
    known = Box.around(prior.nominal, 0.075 * prior.box.width).intersect(prior.box)
    found = {
        f"prior, {prior.box.lower[0]:g} to {prior.box.upper[0]:g} kg": (prior.box, prior.nominal),
        "+- 7.5 % of the prior's box": (known, prior.nominal),
    }
    if "safe_id_table_1" in robot.payload_priors:
        table, body = robot.prior("safe_id_table_1"), robot.theta_nominal[robot.inertial_slice(robot.n)]
        box = Box(table.box.lower - body, table.box.upper - body)
        own = Box(np.r_[0.0, box.lower[1:]], box.upper)
        found["Table I, payload a body"] = (own, np.clip(table.nominal - body, own.lower, own.upper))
        found["Table I"] = (box, table.nominal - body)
    return {
        name: ((robot.theta_box, box), choose_payload(robot, (robot.theta_box, box), payload))
        for name, (box, payload) in found.items()
    }


def motions(robot: RobotModel, model: ControlModel, settings: RobustSettings):
    """Names, motions and histories, estimated and proven; where the first plan has no bound there is no chain."""
    zero, signs = np.zeros(robot.n), np.resize([1.0, 1.0, -1.0], robot.n)
    first = BezierTrajectory(robot.home, zero, zero, robot.home + RANGE, DURATION)
    none = None, None
    yield "hold", robot.home, none
    yield "0.1 rad in 3 s", BezierTrajectory(robot.home, zero, zero, robot.home + 0.1, DURATION), none
    yield "0.26 rad in 3 s", first, none
    try:
        bounds = [tracking_bound(robot, model, first, settings, encloses_terms=kind) for kind in (False, True)]
    except BoundNotAvailable:
        pass
    else:
        state, histories = first.evaluate(T_P), tuple(one.until(T_P) for one in bounds)
        yield "0.26 rad, next plan", BezierTrajectory(*state, state[0] - RANGE * signs, DURATION), histories
    yield "1 rad/s", BezierTrajectory(robot.home, zero, zero, robot.home + signs, 1.9), none
    size = 0.002 * np.outer(signs, [2.0, -1.0])
    yield "5 and 10 Hz", FourierTrajectory(robot.home, np.zeros_like(size), size, 5.0, 0.4), none


@dataclass(frozen=True)
class Excess:
    """By how much terms exceed what is estimated, relative to it, at most along a motion and in its tube.

    Attributes:
        along: Along the motion [-].
        corner: In the tube [-].
        share: Largest share of what is allowed there [-].
        term: The term that is meant by ``corner``.
    """

    along: float
    corner: float
    share: float
    term: str


def find_excess(bound: TrackingBound) -> Excess:
    """Compare terms with their estimates; those that are next to nothing, below 5 % of their largest, do not count."""
    assert bound.proof is not None
    tube_map, tube = bound.proof.tube_map, bound.proof.tube
    samples, used = tube_map.samples, tube_map.terms.largest
    names = [one.name for one in fields(ModelTerms) if one.name not in ("inertia", "torque_gradient")]

    def shares(nodes: np.ndarray, away: np.ndarray | float) -> np.ndarray:  # (terms, nodes)
        states = TermStates(samples.q[nodes] + away, samples.v[nodes], samples.a[nodes])
        terms = compute_model_terms(tube_map.robot, tube_map.uncertainty, states)
        values = np.stack([getattr(terms, name) for name in names])
        estimates = np.stack([getattr(used, name)[tube_map.spread[nodes]] for name in names])
        return np.where(values > 0.05 * values.max(axis=1)[:, None], values / np.maximum(estimates, 1e-300), 0.0)

    along = shares(np.arange(0, tube_map.intervals, 5), 0.0).max()
    nodes = np.unique(np.linspace(0, tube_map.intervals - 1, 15).astype(int))
    size, joints = tube.position[nodes], np.eye(samples.q.shape[1])
    rises = np.stack([shares(nodes, size * one) > shares(nodes, -size * one) for one in joints], axis=-1)
    corners = np.stack([shares(nodes, np.where(one, size, -size))[k] for k, one in enumerate(rises)])
    allowed = tube_map.allowance(tube) - 1.0
    share = max((along - 1.0) / allowed.min(), ((corners - 1.0) / allowed[nodes]).max(), 0.0)
    most = max(along, corners.max())  # corners are looked at in fewer places
    return Excess(max(along, 1.0) - 1.0, most - 1.0, share, names[int(corners.max(axis=1).argmax())])


def compare_proven(estimated: TrackingBound, proven: TrackingBound | None) -> list[float | str]:
    """Say by how much a bound that is proven throughout is larger, on the path and in stops."""

    def larger(one: np.ndarray, other: np.ndarray) -> str:
        return f"{100.0 * ((one / other).max() - 1.0):.1f}"

    if proven is None:
        return ["none", "", "", ""]
    found = [larger(getattr(proven, name), getattr(estimated, name)) for name in ("position", "torque")]
    try:
        stops = [one.in_stops(BRAKE_TIME) for one in (proven, estimated)]
    except BoundNotAvailable:
        return [*found, "none", ""]
    torques = (one.torque.max(axis=0) for one in stops)
    return [*found, larger(*(one.position for one in stops)), larger(*torques)]


def draw_case(robot: RobotModel, rng: np.random.Generator) -> tuple[ControlModel, Trajectory]:
    """Draw what is known of arm and payload, and a motion."""
    prior, zero = robot.payload_prior, np.zeros(robot.n)
    box = Box.around(prior.nominal, rng.choice([1.0, 0.3, 0.075, 0.0]) * prior.box.width).intersect(prior.box)
    arm = Box.around(robot.theta_nominal, rng.choice([1.0, 0.3, 0.05]) * robot.theta_box.radius)
    start = rng.uniform(robot.limits.q_lower.clip(-np.pi), robot.limits.q_upper.clip(max=np.pi))
    motion: Trajectory
    if rng.random() < 0.5:
        duration = rng.uniform(0.5, 3.0)
        motion = BezierTrajectory(start, zero, zero, start + rng.uniform(-0.4, 0.4, robot.n) * duration, duration)
    else:
        (sine, cosine), frequency = rest_projection(5), 10.0 ** rng.uniform(-1.0, 0.3)
        size = 10.0 ** rng.uniform(-1.5, -0.2) * rng.normal(size=(2, robot.n, sine.shape[1]))
        turns = max(1, round(frequency))
        motion = FourierTrajectory(start, size[0] @ sine.T, size[1] @ cosine.T, frequency, turns / frequency)
    return ControlModel.of_boxes(robot, (arm, box), choose_payload(robot, (arm, box), prior.nominal)), motion


def plan_chain(
    robot: RobotModel, rng: np.random.Generator, settings: RecedingSettings | None = None, length: int = CHAIN
) -> list[CertifiedPlan]:
    """Plan motions that take over from each other, as an identification does at first; the box stays what it is."""
    planner, plans = CertifiedPlanner(robot, settings), list[CertifiedPlan]()
    start, known = draw(robot, CertifiedPlanner(robot), "held object", None, 0, rng)
    information = np.zeros((10, 10))
    for number in range(length):
        before = plans[-1] if plans else None
        wanted = PlanRequest(
            known, start, before, T_P if before else 0.0, information=information, time_limit=FIRST_LIMIT,
            is_last=number == length - 1,
        )  # fmt: skip
        try:
            plans.append(planner.plan(wanted))
        except PlanFailure:
            break
        if plans[-1].condition_number is None:  # a move to where a chain can begin
            return plan_chain(robot, rng, settings, length)
        information = information + plans[-1].information_gained
    return plans


def print_plans(count: int, robot: RobotModel) -> None:
    """Print how many certificates of chains of plans hold with bounds that are proven throughout."""
    rng, found = np.random.default_rng(11), [list[tuple[bool, float, float, float]]() for _ in range(CHAIN)]
    for _ in range(count):
        checker = BoundRechecker(robot, encloses_terms=True)
        for number, plan in enumerate(plan_chain(robot, rng)):
            begin, certificate = time.process_time(), plan.certificate
            problems = checker.check(plan)
            if not problems:
                problems = recheck(robot, plan, bound=checker.latest, takes_larger=True).problems
            larger = np.inf, np.inf
            if checker.latest is not None:
                stated = certificate.tracking_bound, certificate.torque_bound
                proven = checker.latest.position, checker.latest.torque
                larger = tuple(float((x / y).max() - 1.0) for x, y in zip(proven, stated, strict=True))
            found[number].append((not problems, *larger, time.process_time() - begin))
    rows = []
    for number, plans in enumerate(found):
        if plans:
            held, position, torque, took = (np.array(x) for x in zip(*plans, strict=True))
            worst = [f"{100.0 * x.max():.1f}" for x in (position, torque)]
            middle = [f"{100.0 * np.median(x):.1f}" for x in (position, torque)]
            rows.append([f"{number + 1}", f"{held.sum()} of {held.size}", middle[0], worst[0], middle[1], worst[1],
                         np.median(took), took.max()])  # fmt: skip
    columns = ["plan of a chain", "hold", "position [%]", "largest", "torque [%]", "largest", "CPU [s]", "largest"]
    print_table(columns, rows, "Certified plans with bounds that are proven throughout, these over the stated ones")


def print_proven_plans(count: int, robot: RobotModel) -> None:
    """Print what it takes to plan at rest where plans are only returned once they are proven throughout."""
    rows = []
    for name, proves in (("with estimated terms", False), ("throughout", True)):
        rng, settings = np.random.default_rng(12), RecedingSettings(proves_throughout=proves)
        chains = [plan_chain(robot, rng, settings, 2) for _ in range(count)]
        for number, tried in enumerate((count, sum(bool(one) for one in chains))):
            plans = [one[number] for one in chains if len(one) > number]
            seconds = [plan.statistics.seconds for plan in plans]
            total, proof = (np.array([one.get(part, 0.0) for one in seconds]) for part in ("total", "proof"))
            condition = np.median([plan.condition_number for plan in plans])
            rows.append([name, f"{number + 1}", f"{len(plans)} of {tried}", np.median(total), total.max(),
                         np.median(proof), proof.max(), condition])  # fmt: skip
    columns = ["proven", "plan", "found", "time [s]", "largest", "proof [s]", "largest", "condition number"]
    print_table(columns, rows, "Plans that are made at rest, the second one to take over from the first; medians")


def print_random(count: int, settings: RobustSettings, proven: int) -> None:
    """Print what comes of random motions of all arms, with proven bounds of some."""
    rows = []
    for name in available_robots():
        robot, rng, found, widest = load_robot(name), np.random.default_rng(0), [], 0.0
        larger = []
        for _ in range(count):
            model, motion = draw_case(robot, rng)
            try:
                bound = tracking_bound(robot, model, motion, settings)
            except BoundNotAvailable:
                continue
            found.append(find_excess(bound))
            widest = max(widest, float(bound.position.sum()))
            if len(larger) < proven:
                try:
                    other = tracking_bound(robot, model, motion, settings, encloses_terms=True)
                    larger.append(float((other.position / bound.position).max()) - 1.0)
                except BoundNotAvailable:
                    larger.append(np.inf)
        if found:
            worst = max(found, key=lambda one: one.share)
            along, corner = (max(getattr(one, x) for one in found) for x in ("along", "corner"))
            tail = [f"{100.0 * along:.2f}", f"{100.0 * corner:.2f}", worst.share, worst.term.replace("_", " ")]
            sizes = " ".join("none" if np.isinf(x) else f"{100.0 * x:.1f}" for x in larger)
            rows.append([name, f"{len(found)} of {count}", np.degrees(widest), *tail, sizes])
    columns = [
        "arm", "with a bound", "largest sum of position errors [deg]", "along the motion [%]", "in the tube [%]",
        "share of what is allowed", "most of it", "first ones proven, over these [%]",
    ]  # fmt: skip
    print_table(columns, rows, "The same for random motions; largest values")


def words(values: np.ndarray, digits: int) -> str:
    return " ".join(f"{x:.{digits}f}" for x in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--delay", type=float, default=1e-3, help="longest delay [s]")
    parser.add_argument("--random", type=int, default=30, help="random motions of each arm")
    parser.add_argument("--proven", type=int, default=4, help="those of them with a bound that get a proven one")
    parser.add_argument("--chains", type=int, default=6, help="chains of certified plans")
    arguments = parser.parse_args()
    robot, settings = load_robot(arguments.robot), RobustSettings(delay=arguments.delay)
    rows, beyond, enclosed = [], [], []
    for name, (boxes, payload) in cases(robot).items():
        model = ControlModel.of_boxes(robot, boxes, payload)
        for motion_name, motion, (history, proven_history) in motions(robot, model, settings):
            begin = time.process_time()
            try:
                bound = tracking_bound(robot, model, motion, settings, history)
            except BoundNotAvailable:
                rows.append([name, motion_name, "", "none", "", "", time.process_time() - begin])
                continue
            took = time.process_time() - begin
            ratios = "{:.2f} {:.2f}".format(*bound.inertia_ratios)
            shown = words(np.degrees(bound.position), 2), words(bound.velocity, 2), words(bound.torque, 1)
            rows.append([name, motion_name, ratios, *shown, took])
            one = find_excess(bound)
            percent = [f"{100.0 * x:.2f}" for x in (one.along, one.corner)]
            beyond.append([name, motion_name, *percent, one.share, one.term.replace("_", " ")])
            begin = time.process_time()
            try:
                proven = tracking_bound(robot, model, motion, settings, proven_history, encloses_terms=True)
            except BoundNotAvailable:
                proven = None
            compared = compare_proven(bound, proven)
            enclosed.append([name, motion_name, *compared, time.process_time() - begin])
    columns = ["payload", "motion", "inertia ratios", "position [deg]", "velocity [rad/s]", "torque [Nm]", "CPU [s]"]
    print_table(columns, rows, f"Single motions, delay {1e3 * settings.delay:g} ms")
    columns = [
        "payload", "motion", "along the motion [%]", "in the tube [%]", "share of what is allowed", "most there",
    ]  # fmt: skip
    print_table(columns, beyond, "Slowly varying terms over what is estimated from their nodes")
    columns = ["payload", "motion", "position [%]", "torque [%]", "position in stops", "torque in stops", "CPU [s]"]
    print_table(columns, enclosed, "Bounds that are proven throughout, over those above")
    print_plans(arguments.chains, robot)
    print_proven_plans(2 * arguments.chains, robot)
    print_random(arguments.random, settings, arguments.proven)


if __name__ == "__main__":
    main()
