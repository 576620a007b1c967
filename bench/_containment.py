"""One randomised trial of the bounds: arm, payload, motion and sensor errors, and what the methods make of it."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from _synthetic import EPOCH_NS, TrueArm, measure
from _unproven import unproven_certificate

from sysid_ros.core.control import build_controller
from sysid_ros.core.estimation.bounds.closed_form import bound_with, choose_inverse
from sysid_ros.core.estimation.bounds.state import compute_bounds
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.bounds import hull, report_combinations
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns, describe_unknowns, object_within
from sysid_ros.core.estimation.point.coordinates import from_parameters
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import INERTIAL, PayloadPrior, RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.trajectories.families import FourierTrajectory, rest_projection
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.mujoco.simulation import SensorSimulation
from sysid_ros.emulators.lockstep import run_for, run_trajectory
from sysid_ros.papers.baselines.sensitivity import bound_by_sensitivity

Array = np.ndarray

NOISES = (Noise.UNIFORM, Noise.ADVERSARIAL, Noise.GAIN)
ESTIMATOR = "estimator"
PAPER_METHOD = "sensitivity"
METHODS = ("set_membership", "left_inverse", PAPER_METHOD)
LOOP, EXACT, EMPTY, ONE_JOINT, SHORT, SLOW, SATURATED, WORST, LINK, ALL_LINKS, LONG = KINDS = (
    "control loop",
    "exact motion",
    "no payload",
    "one joint",
    "0.7 s",
    "100 Hz",
    "saturated",
    "worst signs",
    "any link",
    "all links",
    "long stream",
)
PAYLOAD_KINDS = (*KINDS[:8], LONG)
"""``control loop``: recorded by the loop with the MuJoCo arm. The others follow a motion exactly (``_synthetic``):
``exact motion`` at 1 kHz; a payload of mass 0; all joints but one at rest; a piece of 0.7 s from somewhere in the
motion; 100 Hz; every error of every sample at one of its limits; errors of torques and velocities and all parameters
of the arm at those limits that move the bounds of one parameter
furthest, out of those whose bounds the data narrow to less than half; ``any link``: an object on a random link, the
hand may hold a payload; ``all links``: the base parameters of all bodies, some with friction far outside its box. For
these two only the estimator runs, and its bounds are of what joint torques can tell. ``long stream``: four times the
data, so that windows are compacted and bounds renewed in turns."""

HARMONICS = 5
DONE = "trajectory done"
_SHORT = 0.7  # [s]
_REST = 0.05
"""Rest before the motion [s]."""


class SaturatedSensors(SensorSimulation):
    """Every error of every sample at its upper or lower limit, but for the rounding of the encoders."""

    def _draw(self) -> Array:
        return np.where(super()._draw() < 0.0, -1.0, 1.0)


def random_motion(robot: RobotModel, q_start: Array, rng: np.random.Generator, seconds: float) -> FourierTrajectory:
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
        offset = q_start if np.ndim(limit) == 0 else 0.0
        used.append(np.max(np.abs(np.array(extrema) - offset), axis=0) / limit)
    scale = 1.0 / np.max(used, axis=0)[:, None]
    return FourierTrajectory(q_start, scale * sine, scale * cosine, 1.0 / seconds, seconds)


def draw_payload(robot: RobotModel, rng: np.random.Generator, kind: str, is_corner: bool) -> Array:
    """An object of the prior with a mass from 0 to the rating of the arm; at the corners exactly the rating."""
    if kind == EMPTY:
        return np.zeros(INERTIAL)
    shape = sample_payload(robot.payload_prior, rng, corner=is_corner)
    mass = robot.rated_payload if is_corner else rng.uniform(0.0, robot.rated_payload)
    return np.clip(shape * (mass / shape[0]), robot.payload_prior.box.lower, robot.payload_prior.box.upper)


def run_trial(robot: RobotModel, kind: str, seed: int, seconds: float) -> dict:
    """One trial; plain numbers and texts.

    Args:
        robot: The arm and what is known of it.
        kind: One of :data:`KINDS`.
        seed: What everything is drawn from. Even seeds put the arm at the corners of its box.
        seconds: Duration of the motion [s].
    """
    rng = np.random.default_rng((seed, KINDS.index(kind)))
    is_corner = seed % 2 == 0
    theta = sample_parameters(robot, rng, is_corner)
    payload = draw_payload(robot, rng, kind, seed % 8 == 7)
    noise = NOISES[(seed // 2) % len(NOISES)]
    labels = {"noise": noise.value, "arm": "corners" if is_corner else "inside"}
    settings = EstimatorSettings()
    seconds = 4.0 * seconds if kind == LONG else seconds
    stop = ""
    if kind in (LINK, ALL_LINKS):
        entry = {"robot": robot.name, "kind": kind, "seed": seed, **labels, "stop": stop}
        return entry | estimate_bodies(robot, kind, theta, payload, noise, rng, seed, seconds)
    if kind == LOOP:
        blocks, stop = record_loop(robot, theta, payload, noise, rng, seconds)
    elif kind == WORST:
        labels = {"noise": "worst signs", "arm": "worst corner"}
        blocks = [worst_samples(robot, payload, rng, seconds, settings)]
    else:
        saturated = SaturatedSensors(robot.sensors, Noise.UNIFORM, seed)
        sensors = saturated if kind == SATURATED else SensorSimulation(robot.sensors, noise, seed)
        labels |= {"noise": "saturated"} if kind == SATURATED else {}
        blocks = [exact_samples(robot, theta, payload, sensors, rng, seconds, kind, settings)]
    entry = {"robot": robot.name, "kind": kind, "seed": seed, **labels, "payload": payload.tolist(), "stop": stop}
    return entry | estimate_all(robot, blocks, payload, settings)


def estimate_bodies(
    robot: RobotModel,
    kind: str,
    theta: Array,
    payload: Array,
    noise: Noise,
    rng: np.random.Generator,
    seed: int,
    seconds: float,
) -> dict:
    """An object on a link, or all bodies, with a payload in the hand."""
    settings = EstimatorSettings(body="all", payload_in_hand=True, bound_tolerance=1e-2, update_windows=30)
    theta, added = theta.copy(), np.zeros(0)
    if kind == ALL_LINKS and seed // 2 % 2:
        settings = replace(settings, friction_range=2.0)
        friction = INERTIAL * robot.n
        theta[friction:] *= rng.uniform(0.1, 1.8, theta[friction:].size)
    if kind == LINK:
        body = int(rng.integers(1, robot.n + 1))
        asked = ("payload", "end_effector")[seed // 2 % 2]
        settings = replace(settings, body=robot.joint_names[body - 1], target=asked)
        box, nominal = object_within(settings.body_mass, settings.body_reach)
        added = sample_payload(PayloadPrior(box, nominal), rng, corner=seed % 8 == 5)
        theta[robot.inertial_slice(body)] += added
    sensors = SensorSimulation(robot.sensors, noise, seed)
    block = exact_samples(robot, theta, payload, sensors, rng, seconds, EXACT, settings)
    history: list[ParameterEstimate] = []
    estimator = StreamingEstimator(robot, settings, on_update=history.append)
    started = time.process_time()
    notices = estimator.add(block)
    final = estimator.estimate()
    spent = time.process_time() - started
    truth = theta.copy()
    truth[robot.inertial_slice(robot.n)] += payload
    target = estimator.target
    truth = added if target.is_added else truth[target.columns]
    is_inside = all(
        item.contains(truth) and (item.combinations is None or item.combinations.contains(truth))
        for item in [*history, final]
    )
    known = target.combinations
    prior = hull(known.matrix, target.prior)
    bounds = report_combinations(target, final)
    return {
        "inside": {ESTIMATOR: is_inside},
        "bounds": {ESTIMATOR: [list(bounds.lower), list(bounds.upper)]},
        "names": list(known.names),
        "prior": [prior.lower.tolist(), prior.upper.tolist()],
        "payload": (known.matrix @ truth).tolist(),
        "alarm": final.alarm_text,
        "notices": notices,
        "data": final.data_seconds,
        "time": spent,
    }


def record_loop(
    robot: RobotModel, theta: Array, payload: Array, noise: Noise, rng: np.random.Generator, seconds: float
) -> tuple[list[SampleBlock], str]:
    """What the control loop records with the MuJoCo arm in lock-step, and why it stopped if it did."""
    seed = int(rng.integers(2**31))
    share = 1.0 - 2.0 * (seed // 4 % 2)  # of the error of the stiffness, where joints are elastic
    arm = MujocoArm(robot, theta, payload, settings=MujocoSettings(noise=noise, seed=seed, stiffness_share=share))
    loop = ControlLoop(arm, build_controller("gravity_pid", robot), robot, LoopSettings(stuck_displacement=0.1))
    loop.connect()
    blocks = [run_for(loop, 0.3).block]
    plan = random_motion(robot, np.array(loop.status().reference), rng, seconds)
    certificate = unproven_certificate(robot, loop.model, loop.status().law, plan, 0.2)
    blocks.append(run_trajectory(loop, plan, certificate).block)
    reason = loop.status().reason
    return blocks, "" if reason == DONE else reason


def exact_samples(
    robot: RobotModel,
    theta: Array,
    payload: Array,
    sensors: SensorSimulation,
    rng: np.random.Generator,
    seconds: float,
    kind: str,
    settings: EstimatorSettings,
) -> SampleBlock:
    """Samples of an exactly followed motion."""
    times, states, tau = exact_motion(robot, theta, payload, rng, seconds, kind, settings)
    return measure(sensors, times, *states[:2], tau)


def exact_motion(
    robot: RobotModel,
    theta: Array,
    payload: Array,
    rng: np.random.Generator,
    seconds: float,
    kind: str,
    settings: EstimatorSettings,
) -> tuple[Array, tuple[Array, Array, Array], Array]:
    """Times (N,) [s], true states, each (N, n), and true torques (N, n) [Nm]."""
    period = 0.01 if kind == SLOW else 0.001
    plan = random_motion(robot, robot.home, rng, seconds)
    moving = np.arange(robot.n) == rng.integers(robot.n) if kind == ONE_JOINT else np.ones(robot.n, dtype=bool)

    def motion(times: Array) -> tuple[Array, Array, Array]:
        q, v, a = plan.sample(times - _REST)
        return np.where(moving, q, robot.home), np.where(moving, v, 0.0), np.where(moving, a, 0.0)

    first, length = (rng.uniform(0.0, seconds - _SHORT), _SHORT) if kind == SHORT else (0.0, seconds + 2.0 * _REST)
    times = first + period * np.arange(round(length / period) + 1)
    arm = TrueArm(robot, theta, payload, rng.uniform(-1.0, 1.0, robot.n), settings.stiction_speed)
    states = motion(times)
    is_held = robot.sensors.effort_is_held
    return times, states, arm.mean_torque(motion, times, period) if is_held else arm.torque(*states)


def worst_samples(
    robot: RobotModel, payload: Array, rng: np.random.Generator, seconds: float, settings: EstimatorSettings
) -> SampleBlock:
    """Data made to move the bounds of one parameter as far as the error bounds of torques, velocities and arm allow.

    From perfect data comes the left inverse L; one row l of it moves by ``l du + l B delta - l v e``, with du the error
    of the torque integrals, delta that of arm and gains and e that of the velocities at the ends of the windows. Each
    gets the sign that adds to the others. Gains are the same over all data. Encoders round, stamps are exact.
    """
    seed = rng.integers(2**31)
    center = robot.theta_box.center
    draw = (seconds, EXACT, settings)
    times, states, tau = exact_motion(robot, center, payload, np.random.default_rng(seed), *draw)
    perfect = measure(SensorSimulation(robot.sensors, Noise.NONE, 0), times, *states[:2], tau)
    rows, unknowns = collect_rows(robot, [perfect], settings)
    problem = build_problem(robot, rows, unknowns)
    inverse = choose_inverse(problem, 2 * settings.reweightings)
    # Where the data say nothing there is nothing to disturb.
    known = np.flatnonzero(bound_with(problem, inverse).radius < 0.5 * problem.radius)
    chosen = rng.choice((-1.0, 1.0)) * inverse[rng.choice(known) if known.size else 0]
    lasting = np.sign(chosen @ rows.b)
    theta = center + lasting[: center.size] * robot.theta_box.radius
    theta = np.clip(theta, robot.theta_box.lower, robot.theta_box.upper)
    times, states, tau = exact_motion(robot, theta, payload, np.random.default_rng(seed), *draw)
    q = measure(SensorSimulation(robot.sensors, Noise.ADVERSARIAL, 0), times, *states[:2], tau).q
    n, sensors = robot.n, robot.sensors
    torque_sign = rng.choice((-1.0, 1.0), (len(times), n))
    for k in range(0, len(rows), n):
        inside = (perfect.stamps > rows.start[k]) & (perfect.stamps <= rows.stop[k])
        torque_sign[inside] = np.sign(chosen[k : k + n])
    velocity_sign = np.zeros((len(times), n))
    instants = np.unique(np.stack([rows.start, rows.stop]))
    ends = -np.sign(chosen @ problem.end_matrix).reshape(len(instants), -1)
    # With each velocity error stand its products with the ten parameters of the payload.
    velocity_sign[np.isin(perfect.stamps, instants)] = ends[:, : (1 + INERTIAL) * n : 1 + INERTIAL]
    error = (sensors.effort_relative_error - sensors.effort_gain_error) * np.abs(tau)
    error += np.minimum(sensors.effort_mean_error, sensors.effort_absolute_error)
    vibration = np.zeros_like(tau)  # from end to end its integral goes from one side of its range to the other
    for k in range(len(instants) - 1):
        inside = (perfect.stamps > instants[k]) & (perfect.stamps <= instants[k + 1])
        seconds = 1e-9 * (instants[k + 1] - instants[k])
        vibration[inside] = 0.5 * (ends[k, -n:] - ends[k + 1, -n:]) * sensors.effort_integral_error / seconds
    gain = 1.0 - lasting[unknowns.groups["torque_gain"]] * sensors.effort_gain_error
    v = states[1] + velocity_sign * sensors.velocity_error
    stamps = EPOCH_NS + np.round(1e9 * times).astype(np.int64)
    return SampleBlock(stamps, np.arange(len(times)), q, v, gain * tau + torque_sign * error + vibration)


def collect_rows(robot: RobotModel, blocks: list[SampleBlock], settings: EstimatorSettings) -> tuple[Rows, Unknowns]:
    """The rows of all windows."""
    parts: list[Rows] = []
    whole = replace(settings, method="left_inverse", update_windows=1000)
    estimator = StreamingEstimator(robot, whole, on_rows=parts.append)
    for block in blocks:
        estimator.add(block)
    return Rows.stack(parts), describe_unknowns(robot, settings)


def build_problem(robot: RobotModel, rows: Rows, unknowns: Unknowns) -> Problem:
    prior = unknowns.prior
    return Problem.build(rows, prior.center, prior.radius, unknowns.radius, unknowns.end_error)


def bounds_by(method: str, problem: Problem, unknowns: Unknowns, settings: EstimatorSettings):
    """Bounds from all rows by a method of the estimator, or by the paper's."""
    if method == PAPER_METHOD:
        return bound_by_sensitivity(problem, from_parameters(unknowns.nominal))
    return compute_bounds(problem, unknowns, replace(settings, method=method))


def estimate_all(robot: RobotModel, blocks: list[SampleBlock], payload: Array, settings: EstimatorSettings) -> dict:
    """What the estimator makes of the samples, and what each method makes of the same rows at once.

    ``bounds`` has lower and upper bounds for the estimator and each method. A method's own bounds are cut to the prior,
    nothing else. ``inside`` of the estimator speaks of every update.
    """
    parts, history = [], []
    estimator = StreamingEstimator(robot, settings, on_rows=parts.append, on_update=history.append)
    started = time.process_time()
    notices = [notice for block in blocks for notice in estimator.add(block)]
    final = estimator.estimate()
    spent = time.process_time() - started
    bounds = {ESTIMATOR: (final.lower, final.upper)}
    inside = {ESTIMATOR: all(item.contains(payload) for item in [*history, final])}
    unknowns = describe_unknowns(robot, settings)
    prior = unknowns.prior
    problem = build_problem(robot, Rows.stack(parts), unknowns) if parts else None
    for method in METHODS:
        lower, upper = prior.lower, prior.upper
        if problem is not None:
            found = bounds_by(method, problem, unknowns, settings)
            lower, upper = np.maximum(found.lower, lower), np.minimum(found.upper, upper)
        bounds[method] = (lower, upper)
        inside[method] = bool(np.all((lower <= payload) & (payload <= upper)))
    return {
        "inside": inside,
        "bounds": {name: np.array(pair).tolist() for name, pair in bounds.items()},
        "prior": [prior.lower.tolist(), prior.upper.tolist()],
        "alarm": final.alarm_text,
        "notices": notices,
        "data": final.data_seconds,
        "time": spent,
    }
