"""Runs of SAFE-ID's experiments: an identification, a task under a control law, condition numbers of random motions.

Every method gets the same arm for a seed: true parameters anywhere in their box, the same dumbbell and sensors. Time is
simulated. While an arm identifies, it is under the robust law of this library, which certificates need.

Gains of the profile ``published`` are the authors'. They state none for the adaptive laws, which get about the
stiffness of their PID; adaptation gains, and the frequency of the online model's computed torque, are the best of a
stated grid on a run of its own, :data:`TUNING_SEED` with 6 lb, by the largest error of the hand where no torque is
beyond its limit. Methods without a model of their own begin with the middle of the payload prior.

Source: SAFE-ID section VI, Tables II to V.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.control import build_controller
from sysid_ros.core.control.baselines import OnlineModelController, OnlineModelSettings
from sysid_ros.core.control.gains import default_gains
from sysid_ros.core.control.robust import RobustController
from sysid_ros.core.control.settings import Controller
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.core.online_model.least_squares import OnlineFitSettings
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import RecedingSettings
from sysid_ros.core.procedure import IdentificationFailed, IdentificationSettings, run_identification
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import State, Trajectory
from sysid_ros.core.trajectories.braking import trajectory_from_dict
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSample
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.emulators.lockstep import LockstepBackend, LockstepSettings
from sysid_ros.executor import tell_share
from sysid_ros.papers.baselines.adaptive import AdaptiveController, AdaptiveSettings
from sysid_ros.papers.baselines.armour import ArmourController, PublishedPid
from sysid_ros.papers.closed_loop import Reference, Trace, follow
from sysid_ros.papers.names import CERTIFIED, METHODS, OURS, PUBLISHED, RANDOM, WAYS
from sysid_ros.papers.safe_id import (
    HOLD,
    K_RANGE,
    SETTLE,
    Spheres,
    Task,
    build_task,
    experiment_robot,
    identification_scene,
)
from sysid_ros.papers.safe_id_conditions import HORIZONS, condition_numbers

Array = NDArray[np.float64]

PLANS, DURATION, TAKEOVER = 4, 3.0, 1.5
"""Exciting plans, their duration and when the next one takes over [s] (SAFE-ID VI-D)."""
FOURIER_TIME, FOURIER_TRIES = 7.5, 60
TUNING_SEED = 1000
SEARCHES = LockstepSettings((1.0,), 600.0, 600.0)
"""A search takes 1 s of simulated time and ends by itself: the same plans on any machine. Tables have its real time."""
_RETURN_SPEED = 0.5
"""Of the motion from the last plan to the task, over the limits; it is no part of any method, and not judged [-]."""
_PERIOD = 1e-3
_LOOKED_EVERY = 10  # cycles between two looks at distances


GRIDS: Mapping[str, tuple[dict[str, float], ...]] = {
    "adaptive": tuple({"adaptation": gain} for gain in (1.0, 10.0, 100.0, 1000.0)),
    "composite": tuple(
        {"adaptation": gain, "prediction": weight} for gain in (10.0, 100.0, 1000.0) for weight in (0.1, 1.0, 10.0)
    ),
    "online": tuple({"frequency": rate} for rate in (5.0, 10.0, 20.0, 40.0, 80.0)),
}
"""Gains among which the tuning run chooses, by control law."""
STIFFNESS = {"bandwidth": 1.0, "position_gain": 7.0}
"""Feedback of the adaptive laws [1/s]: with these rotors a stiffness of 60 to 90 Nm/rad, as the PID of the authors."""


@lru_cache(maxsize=4)
def _planner(profile: str, way: str) -> CertifiedPlanner:
    drawn = RecedingSettings(draws=1, starts=1, iterations=1, improvements=0)
    return CertifiedPlanner(experiment_robot(profile), drawn if way == CERTIFIED else None)


def make_controller(profile: str, kind: str, gains: Mapping[str, float]) -> Any:
    """Build a control law of a profile with the gains of its tuning."""
    robot = experiment_robot(profile)
    if kind == "robust":
        return ArmourController(robot) if profile == PUBLISHED else RobustController(robot, default_gains(robot))
    if kind == "pid":
        return PublishedPid(robot)
    if kind in ("adaptive", "composite"):
        feedback = STIFFNESS if profile == PUBLISHED else {"bandwidth": default_gains(robot).bandwidth}
        return AdaptiveController(robot, AdaptiveSettings(**feedback, **gains))
    # Full after 5 s, in the paper after 17 s: the motions here are shorter.
    fit = OnlineFitSettings(capacity=50, rate=10.0, weight=0.95)
    return OnlineModelController(robot, OnlineModelSettings(frequency=gains.get("frequency", 20.0), fit=fit))


def build_arm(profile: str, dumbbell: str, seed: int, start: Array) -> tuple[MujocoArm, Array, Array]:
    """Build the arm of a seed; return it with the true parameters of arm (14 n,) and payload (10,)."""
    robot = experiment_robot(profile)
    theta = sample_parameters(robot, np.random.default_rng((seed, 21)))
    payload = load_payload(robot, dumbbell)
    assert payload is not None
    return MujocoArm(robot, theta, payload, start, MujocoSettings(seed=seed)), theta, payload


def judge_motion(robot: RobotModel, q: Array, v: Array, command: Array, scene: Scene) -> dict[str, Any]:
    """Return the limits and obstacles that a true motion has violated, and its smallest distance."""
    limits, spheres = robot.limits, Spheres(robot)
    clearance = min(spheres.clearance(one, scene) for one in q[::_LOOKED_EVERY])
    room = np.minimum(q - limits.q_lower, limits.q_upper - q).min()
    return {
        "collides": bool(clearance < 0.0),
        "clearance": clearance,
        "position_limit": bool(room < 0.0),
        "velocity": np.max(np.abs(v) / limits.v_max),
        "torque": np.max(np.abs(np.nan_to_num(command)) / limits.tau_max),
    }


def is_safe(judged: Mapping[str, Any]) -> bool:
    """Return whether there was no contact and no limit was broken."""
    return (
        not (judged["collides"] or judged["position_limit"]) and judged["velocity"] <= 1.0 and judged["torque"] <= 1.0
    )


# Identification


def run_identify(profile: str, way: str, dumbbell: str, seed: int) -> dict[str, Any]:
    """Identify a dumbbell by certified plans, exciting (Algorithm 2) or random, by random plans or a Fourier series."""
    if way in (OURS, CERTIFIED):
        return _identify_certified(profile, way, dumbbell, seed)
    robot, scene = experiment_robot(profile), identification_scene(profile)
    start, rng = build_task("a", profile).start, np.random.default_rng((seed, 22))
    arm, _, payload = build_arm(profile, dumbbell, seed, start)
    if way == RANDOM:
        controller: Controller = RobustController(robot, default_gains(robot))
        moving: Reference = concatenate(random_plans(robot, start, rng))
        duration = (PLANS - 1) * TAKEOVER + DURATION
    else:
        moving, duration = fourier_motion(robot, start, rng), FOURIER_TIME
        controller = make_controller(profile, "pid", {})
        controller.set_model(robot.theta_nominal, robot.theta_box, np.zeros(INERTIAL), robot.payload_prior.box)
    controller.reset()
    history: list[tuple[float, Array]] = []
    estimator = StreamingEstimator(robot)
    trace = follow(arm, controller, after_rest(moving, start), SETTLE + duration + 0.5)
    for begin in range(0, len(trace.t), 20):
        part = slice(begin, min(len(trace.t), begin + 20))
        q, v, tau = trace.measured[:, part]
        estimator.add(SampleBlock(trace.stamps[part], np.arange(part.start, part.stop), q, v, tau))
        if begin % 500 == 0 and begin:
            history.append((float(trace.t[begin]), estimator.estimate().values))
    judged = judge_motion(robot, trace.q, trace.v, trace.command, scene)
    return _identified(estimator.estimate(), payload, history, float(trace.t[-1])) | {"judged": judged, "plans": []}


def _identify_certified(profile: str, way: str, dumbbell: str, seed: int) -> dict[str, Any]:
    robot, scene = experiment_robot(profile), identification_scene(profile)
    arm, _, payload = build_arm(profile, dumbbell, seed, build_task("a", profile).start)
    loop = ControlLoop(arm, build_controller("robust", robot), robot)
    states: list[tuple[Array, Array, Array]] = []
    history: list[tuple[float, Array]] = []

    def note(sample: LoopSample | None) -> None:
        truth = arm.truth()
        states.append((truth.q, truth.v, np.zeros(robot.n) if sample is None else sample.tau_command))

    def keep(estimate: ParameterEstimate) -> None:
        history.append((1e-9 * loop.now_ns, estimate.values))

    estimator = StreamingEstimator(robot, on_update=keep)
    backend = LockstepBackend(loop, _planner(profile, way), estimator, scene, SEARCHES, note)
    wanted = IdentificationSettings(trajectories=PLANS, max_motion_time=60.0, shrink_threshold=0.0, weighing_time=1.0)
    failure, estimate = "", None
    try:
        estimate = run_identification(
            backend.ports, backend.make_policy(), wanted, on_progress=lambda one: tell_share(one.progress)
        ).estimate
    except IdentificationFailed as failed:
        failure = str(failed)
    attempts = {one.plan.plan_id: one.plan for one in backend.records.attempts if one.plan is not None}
    plans = [attempts[name] for name in backend.records.executed]
    q, v, command = (np.array(column) for column in zip(*states, strict=True))
    found = _identified(estimate or estimator.estimate(), payload, history, 1e-9 * loop.now_ns)
    return found | {
        "failure": failure,
        "judged": judge_motion(robot, q, v, command, scene),
        "plans": [{"takeover": one.takeover_time, **_as_numbers(one.trajectory)} for one in plans],
        "conditions": [one.condition_number for one in plans],
        "planning": [one.statistics.seconds["total"] for one in plans if one.statistics is not None],
    }


def _as_numbers(trajectory: Trajectory) -> dict[str, Any]:
    numbers = {name: np.asarray(values).tolist() for name, values in trajectory.coefficients.items()}
    return {"kind": trajectory.kind, "duration": trajectory.duration, "coefficients": numbers}


def _from_numbers(plan: Mapping[str, Any]) -> Trajectory:
    numbers = {name: np.array(values) for name, values in plan["coefficients"].items()}
    return trajectory_from_dict(plan["kind"], plan["duration"], numbers)


def _identified(estimate: ParameterEstimate, payload: Array, history: list[Any], seconds: float) -> dict[str, Any]:
    return {
        "values": estimate.values,
        "lower": estimate.lower,
        "upper": estimate.upper,
        "truth": payload,
        "inside": estimate.contains(payload),
        "condition": estimate.condition_number,
        "seconds": seconds,
        "history": [(t, float(values[0])) for t, values in history],
        "failure": "",
    }


def random_plans(robot: RobotModel, start: Array, rng: np.random.Generator) -> list[tuple[float, Trajectory]]:
    """Draw plans that take over from each other, within the limits of positions and velocities alone."""
    state: State = (start.copy(), np.zeros(robot.n), np.zeros(robot.n))
    plans: list[tuple[float, Trajectory]] = []
    limits = robot.limits
    for number in range(PLANS):
        scale = 1.0
        while True:
            plan = BezierTrajectory(*state, state[0] + scale * K_RANGE * rng.uniform(-1.0, 1.0, robot.n), DURATION)
            (q_lower, q_upper), (v_lower, v_upper) = plan.position_extrema(), plan.velocity_extrema()
            fits = np.all(q_lower >= limits.q_lower) and np.all(q_upper <= limits.q_upper)
            if fits and np.all(np.maximum(-v_lower, v_upper) <= limits.v_max):
                break
            scale *= 0.98
        plans.append((number * TAKEOVER, plan))
        state = plan.evaluate(TAKEOVER)
    return plans


def fourier_motion(robot: RobotModel, start: Array, rng: np.random.Generator) -> Reference:
    """Return the best conditioned of random Fourier series within limits of position, velocity and acceleration.

    It begins and ends at rest; neither torques nor obstacles count, as in the method the paper compares with.
    """
    limits, times = robot.limits, np.linspace(0.0, FOURIER_TIME, 300)
    regressor = TorqueRegressor(robot, EffortMeaning.LINK_SIDE, bodies=[robot.n])
    best: tuple[float, Array] = (np.inf, np.zeros((3, robot.n)))
    for _ in range(FOURIER_TRIES):
        amplitudes = rng.uniform(-1.0, 1.0, (3, robot.n))
        q, v, a = _fourier(amplitudes, start, times)
        reach = np.max(np.abs(q - start), axis=0)
        room = np.minimum(limits.q_upper - start, start - limits.q_lower)
        scale = np.min([
            np.minimum(room, np.pi / 2.0) / reach,
            limits.v_max / np.max(np.abs(v), axis=0),
            limits.a_max / np.max(np.abs(a), axis=0),
        ], axis=0)  # fmt: skip
        amplitudes = 0.95 * scale * amplitudes
        columns = regressor.evaluate(*_fourier(amplitudes, start, times))[:, :, :INERTIAL]
        condition = float(np.linalg.cond(columns.reshape(-1, INERTIAL)))
        if condition < best[0]:
            best = condition, amplitudes
    chosen = best[1]

    def reference(t: float) -> State:
        q, v, a = _fourier(chosen, start, np.array([min(t, FOURIER_TIME)]))
        return (q[0], v[0], a[0]) if t < FOURIER_TIME else (start.copy(), 0.0 * start, 0.0 * start)

    return reference


def _fourier(amplitudes: Array, start: Array, times: Array) -> State:
    """Evaluate sines under a window that is at rest at both ends, (N, n) each."""
    rate = 2.0 * np.pi / FOURIER_TIME
    window, window_v = 0.5 * (1 - np.cos(rate * times)), 0.5 * rate * np.sin(rate * times)
    window_a = 0.5 * rate**2 * np.cos(rate * times)
    orders = rate * np.arange(1, 4)
    wave = np.sin(np.outer(times, orders)) @ amplitudes
    wave_v = (orders * np.cos(np.outer(times, orders))) @ amplitudes
    wave_a = (-(orders**2) * np.sin(np.outer(times, orders))) @ amplitudes
    one, two, three = window[:, None], window_v[:, None], window_a[:, None]
    return start + one * wave, one * wave_v + two * wave, one * wave_a + 2.0 * two * wave_v + three * wave


def concatenate(plans: list[tuple[float, Trajectory]]) -> Reference:
    """Return the motion along plans, each from the time at which it takes over [s]."""

    def reference(t: float) -> State:
        begin, plan = [one for one in plans if one[0] <= max(t, 0.0)][-1]
        return plan.evaluate(min(max(t - begin, 0.0), plan.duration))

    return reference


def after_rest(motion: Reference, start: Array) -> Reference:
    """Return a motion after a time of rest, :data:`SETTLE`."""
    zero = np.zeros_like(start)
    return lambda t: motion(t - SETTLE) if t >= SETTLE else (start, zero, zero)


# Tasks


def run_task(profile: str, experiment: str, method: str, dumbbell: str, seed: int, **more: Any) -> dict[str, Any]:
    """Place a dumbbell under a method's control law.

    Args:
        profile: Of :data:`PROFILES`.
        experiment: a, b or c.
        method: One of :data:`METHODS`.
        dumbbell: The load.
        seed: Of the arm.
        more: ``gains`` of the control law; ``payload``, ``lower`` and ``upper`` of the identification; ``plans`` of the
            control law before the task.
    """
    robot, task, chosen = experiment_robot(profile), build_task(experiment, profile), METHODS[method]
    controller = make_controller(profile, chosen.controller, more.get("gains") or {})
    prior = robot.payload_prior
    payload, box, arm_box = prior.nominal, prior.box, robot.theta_box
    if chosen.model == "identified":
        if more.get("payload") is None:
            return {"failure": "identification failed: the data contradict the assumptions"}
        payload, box = np.array(more["payload"]), Box(np.array(more["lower"]), np.array(more["upper"]))
    elif chosen.model == "nothing":  # and no uncertainty of anything (Table II)
        payload = np.zeros(INERTIAL)
        box, arm_box = Box(payload, payload), Box(robot.theta_nominal, robot.theta_nominal)
    controller.set_model(robot.theta_nominal, arm_box, payload, box)
    controller.reset()
    before, begin = _before(robot, more.get("plans") or [], task.start)
    arm, _, _ = build_arm(profile, dumbbell, seed, before(0.0)[0])

    def reference(t: float) -> State:
        return before(t) if t < begin else task.evaluate(t - begin - SETTLE)

    masses: list[tuple[float, float]] = []

    def note(cycle: int) -> None:
        if isinstance(controller, AdaptiveController) and cycle % 100 == 0:
            masses.append((cycle * _PERIOD, float(controller.payload[0])))

    trace = follow(arm, controller, reference, begin + SETTLE + 2.0 * task.leg + HOLD, note)
    result = _judge_task(robot, task, trace, begin) | {
        "model": _model_of(controller, payload),
        "failure": "",
        "masses": masses,
    }
    if begin:
        until = trace.t < begin
        parts = trace.q[until], trace.v[until], trace.command[until]
        result["before"] = judge_motion(robot, *parts, identification_scene(profile))
    if seed:
        del result["shown"]  # curves of one arm are enough
    return result


def _before(robot: RobotModel, plans: list[Mapping[str, Any]], start: Array) -> tuple[Reference, float]:
    """Return the motion before the task, along plans and to its start, and when it ends [s]; at rest without plans."""
    zero = np.zeros_like(start)
    if not plans:
        return lambda t: (start, zero, zero), 0.0
    begins = np.concatenate([[0.0], np.cumsum([one["takeover"] for one in plans[1:]])])
    found = [(float(t), _from_numbers(one)) for t, one in zip(begins, plans, strict=True)]
    end = found[-1][0] + found[-1][1].duration
    rest = found[-1][1].evaluate(found[-1][1].duration)
    duration = DURATION
    while _speed(robot, back := BezierTrajectory(*rest, start, duration)) > _RETURN_SPEED:
        duration *= 1.2
    moving = concatenate([*found, (end, back)])
    return after_rest(moving, found[0][1].evaluate(0.0)[0]), SETTLE + end + duration


def _speed(robot: RobotModel, motion: BezierTrajectory) -> float:
    lower, upper = motion.velocity_extrema()
    return float(np.max(np.maximum(-lower, upper) / robot.limits.v_max))


def _model_of(controller: Any, payload: Array) -> dict[str, Any]:
    """Return the mass in the controller's model at the end, and whether SVA's gate is open."""
    if isinstance(controller, AdaptiveController):
        return {"mass": float(controller.payload[0])}
    if isinstance(controller, OnlineModelController):
        return {"mass": float(payload[0]), "gate": controller.status.is_open}
    return {"mass": float(payload[0])}


def _judge_task(robot: RobotModel, task: Task, trace: Trace, begin: float) -> dict[str, Any]:
    poses = BodyPoses(robot)
    moving = (trace.t >= begin + SETTLE) & (trace.t < begin + SETTLE + 2.0 * task.leg)
    rows = np.flatnonzero(moving)[::5]
    hand = poses.tool_path(trace.q[rows]) - poses.tool_path(trace.desired[rows])
    apart = np.linalg.norm(hand, axis=1)
    last = poses.tool_path(trace.q[-1:]) - poses.tool_path(task.goal[None])
    used = trace.t >= begin
    limit = robot.limits.tau_max
    applied = np.clip(trace.command, -limit, limit)
    power = np.abs(applied * trace.v).sum(axis=1)
    spheres = Spheres(robot)
    wanted, true = (min(spheres.clearance(q, task.scene) for q in part[rows]) for part in (trace.desired, trace.q))
    return {
        "clearance_lost": wanted - true,
        "hand_max": apart.max(),
        "hand_mean": apart.mean(),
        "placed": float(np.linalg.norm(last)),
        "joint_max": np.abs(trace.error[moving]).max(),
        "torque_rms": float(np.sqrt(np.mean((applied[moving] / limit) ** 2))),
        "energy": float(_PERIOD * power[moving].sum()),
        "judged": judge_motion(robot, trace.q[used], trace.v[used], trace.command[used], task.scene),
        "shown": {
            "t": np.round(trace.t[rows[::4]] - begin - SETTLE, 3),
            "error": np.round(trace.error[rows[::4]], 6),
            "torque": np.round(trace.command[rows[::4]], 3),
        },
    }


def run_conditions(motions: int, seed: int, period: float) -> dict[str, Any]:
    """Return condition numbers of the regressors W and Y of random Fourier motions of 10 s at 1 kHz (Table IV)."""
    of_w, of_y = condition_numbers(experiment_robot(PUBLISHED), motions, seed, period)
    return {"horizons": list(HORIZONS), "w": of_w, "y": of_y}


def tuning_jobs(profile: str) -> list[dict[str, Any]]:
    """Return the runs that choose gains: an arm of their own with 6 lb, Experiment (b)."""
    by_kind = {"adaptive": "adap-1", "composite": "adap-2", "online": "online-model"}
    return [
        {
            "kind": "tune",
            "profile": profile,
            "experiment": "b",
            "method": method,
            "dumbbell": "dumbbell_6lb",
            "seed": TUNING_SEED,
            "gains": one,
        }
        for kind, method in by_kind.items()
        for one in GRIDS[kind]
    ]


def choose_gains(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return by control law the gains with the smallest error of the hand, at its largest; safe ones first."""
    best: dict[str, tuple[tuple[bool, float], dict[str, float]]] = {
        kind: ((False, 0.0), {}) for kind in ("robust", "pid")
    }
    for entry in entries:
        kind, result = METHODS[entry["job"]["method"]].controller, entry["result"]
        rank = (not is_safe(result["judged"]), result["hand_max"])
        if kind not in best or rank < best[kind][0]:
            best[kind] = rank, dict(entry["job"]["gains"])
    return {kind: gains for kind, (_, gains) in best.items()}


def identification_jobs(
    profile: str, seeds: int, dumbbells: Sequence[str], ways: Sequence[str] = WAYS
) -> list[dict[str, Any]]:
    """Return the identifications: every dumbbell, arm and way of moving."""
    return [
        {"kind": "identify", "profile": profile, "way": way, "dumbbell": dumbbell, "seed": seed}
        for seed in range(seeds)
        for dumbbell in dumbbells
        for way in ways
    ]


def task_jobs(
    profile: str,
    gains: Mapping[str, Mapping[str, float]],
    identified: Sequence[Mapping[str, Any]],
    experiments: Sequence[str],
    methods: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the tasks, with the identifications before them.

    Args:
        profile: Of :data:`PROFILES`.
        gains: Of each control law.
        identified: Entries of the identifications; dumbbells and arms are theirs.
        experiments: Of a, b, c; the last is with the heaviest dumbbell alone (SAFE-ID VI-B).
        methods: Of :data:`METHODS`.
    """
    found = {(one["job"]["way"], one["job"]["dumbbell"], one["job"]["seed"]): one["result"] for one in identified}
    cases = sorted({(dumbbell, seed) for _, dumbbell, seed in found}, key=lambda one: (one[1], one[0]))
    heaviest = max((dumbbell for dumbbell, _ in cases), default="")
    jobs = []
    for dumbbell, seed in cases:
        for experiment in experiments:
            if experiment == "c" and dumbbell != heaviest:
                continue
            for method in methods:
                chosen = METHODS[method]
                result = found.get((chosen.way, dumbbell, seed), {}) if chosen.way else {}
                names = {"experiment": experiment, "method": method, "dumbbell": dumbbell, "seed": seed}
                job = {"kind": "task", "profile": profile, **names, "gains": dict(gains[chosen.controller])}
                if chosen.model == "identified":
                    values = result.get("values")
                    is_known = values is not None and bool(np.isfinite(np.array(values, dtype=float)).all())
                    job |= {"payload": values if is_known else None}
                    job |= {name: result[name] if is_known else None for name in ("lower", "upper")}
                elif chosen.controls:
                    job["plans"] = result.get("plans", [])
                jobs.append(job)
    return jobs


WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "identify": run_identify,
    "task": run_task,
    "tune": run_task,
    "conditions": run_conditions,
}


def run(kind: str, **job: Any) -> dict[str, Any]:
    """Execute one run, for an executor."""
    return WORK[kind](**job)
