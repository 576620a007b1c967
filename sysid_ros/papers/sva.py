"""Experiments of SVA section VI in simulation, and the cost of its regressor.

The paper gives neither parameters of its robots nor their motions, noise or gains: ours are in ``config/sva`` and
below. The true robot has other parameters than the drawing by up to a third, friction, and sensors with the errors of
its file; accelerations are not measured.

Source: SVA section VI, Figures 4 to 7.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.control.baselines import (
    GateSettings,
    GravityPid,
    OnlineModelController,
    OnlineModelSettings,
    PidSettings,
)
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.model.robot_files import config_directories
from sysid_ros.core.online_model.least_squares import (
    ModelObserver,
    Observation,
    OnlineFitSettings,
    OnlineLeastSquares,
    coefficient_of_determination,
)
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import State
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.papers.closed_loop import Reference, Trace, follow, smooth_step
from sysid_ros.papers.names import ARM, COST, LEG, PENDULUM
from sysid_ros.papers.names import SVA_ROBOTS as ROBOTS

Array = NDArray[np.float64]

EFFECTIVE = (0, 3, 6)
"""Of a planar link that turns about y: mass, first moment along the link, moment of inertia about y."""
DURATIONS = {PENDULUM: 20.0, LEG: 40.0, ARM: 45.0}
"""Of the experiments [s]."""
DENSITY = 1.35
"""True inertial parameters over the initial model's."""
SIZES = (2, 3, 4, 6, 8, 12, 16, 22, 30, 44)
"""Joints of the trees whose regressor is timed; the paper's humanoid has 44."""
_BRANCHES_FROM = 16
"""Joints from which on these have arms and legs."""
ASYMPTOTIC = 12
"""Joints from which on the exponent of the cost is fitted: below, the fixed cost of a call decides."""
SHOWN = 300
"""Points of a curve that are kept."""
_PERIOD = 1e-3
_OFFLINE_EVERY = 10  # cycles per equation of the offline fit


@lru_cache(maxsize=4)
def robot_of(experiment: str) -> RobotModel:
    """Return the robot of an experiment."""
    name = f"{ROBOTS[experiment]}.yaml"
    (path, *_) = [folder / "sva" / name for folder in config_directories() if (folder / "sva" / name).is_file()]
    return load_robot(Path(path))


def true_parameters(robot: RobotModel, seed: int) -> Array:
    """Draw the true parameters, (14 n,): all bodies denser than in the drawing, friction anywhere in its box."""
    rng, theta, inertial = np.random.default_rng((seed, 11)), robot.theta_nominal.copy(), INERTIAL * robot.n
    density = DENSITY * rng.uniform(0.95, 1.05, robot.n)
    theta[:inertial] *= np.repeat(density, INERTIAL)
    box = robot.theta_box
    theta[inertial:] = rng.uniform(box.lower[inertial:], box.upper[inertial:])
    return theta


def sines(robot: RobotModel, amplitude: Array, rates: Array) -> Reference:
    """Return a motion of two sines per joint around home, that grows from rest within two seconds."""
    phase = np.linspace(0.0, 2.0, robot.n)

    def reference(t: float) -> State:
        ramp, ramp_v, ramp_a = smooth_step(min(1.0, t / 2.0))
        ramp_v, ramp_a = ramp_v / 2.0, ramp_a / 4.0
        one, two = rates * t + phase, 1.7 * rates * t
        wave = np.sin(one) + 0.5 * np.sin(two)
        wave_v = rates * (np.cos(one) + 0.85 * np.cos(two))
        wave_a = -(rates**2) * (np.sin(one) + 1.445 * np.sin(two))
        q = robot.home + amplitude * ramp * wave
        v = amplitude * (ramp * wave_v + ramp_v * wave)
        a = amplitude * (ramp * wave_a + 2.0 * ramp_v * wave_v + ramp_a * wave)
        return q, v, a

    return reference


def tick_tock(robot: RobotModel, reach: Array) -> Reference:
    """Return a motion from one posture to another and back, by polynomials of degree 5 with rests in between."""
    move, rest = 1.0, 0.25

    def reference(t: float) -> State:
        number, within = divmod(t, move + rest)
        share, rate, change = smooth_step(min(1.0, within / move))
        start, step = (-reach, 2.0 * reach) if number % 2 == 0 else (reach, -2.0 * reach)
        if number == 0:
            start, step = np.zeros_like(reach), reach  # from home, at rest
        return robot.home + start + step * share, step / move * rate, step / move**2 * change

    return reference


def motion_of(experiment: str) -> Reference:
    """Return the motion of an experiment."""
    robot = robot_of(experiment)
    if experiment == PENDULUM:
        return sines(robot, np.array([0.7, 0.9]), np.array([2.0, 3.1]))
    if experiment == LEG:
        return sines(robot, np.array([0.25, 0.2, 0.3, 0.35]), np.array([1.9, 1.5, 2.2, 2.7]))
    return tick_tock(robot, np.array([0.55, 0.4, -0.6, 0.5]))


def validation_states(robot: RobotModel) -> tuple[Array, Array, Array]:
    """Return states of a motion that no experiment makes, (N, n) each."""
    amplitude = 0.3 * np.ones(robot.n)
    reference = sines(robot, amplitude, np.linspace(3.3, 2.1, robot.n))
    states = [reference(t) for t in np.arange(2.0, 8.0, 0.05)]
    q, v, a = (np.array(column) for column in zip(*states, strict=True))
    return q, v, a


class Equations:
    """Equations of torques from measured cycles, of the columns that an experiment fits."""

    def __init__(self, robot: RobotModel, columns: NDArray[np.intp]):
        self.robot, self.columns = robot, columns
        self.torque = TorqueRegressor(robot)

    def collect(self, trace: Trace, kind: Observation, every: int) -> tuple[Array, Array, Array]:
        """Return times (M,) [s], regressors (M, n, P) and torques (M, n) [Nm] of a trace."""
        observer = ModelObserver(self.robot, kind, _PERIOD, every)
        found = [(t, observer.note(*row)) for t, *row in zip(trace.t, *trace.measured, strict=True)]
        kept = [(t, *equation) for t, equation in found if equation is not None]
        times, y, u = (np.array(column) for column in zip(*kept, strict=True))
        return times, y[:, :, self.columns], u

    def validate(self, theta: Array, truth: Array) -> Array:
        """Return R^2 of each joint's torque on a motion that was not used, without any noise, (n,)."""
        y = self.torque.evaluate(*validation_states(self.robot))
        return coefficient_of_determination(y @ truth, y[:, :, self.columns] @ theta)


def all_columns(robot: RobotModel) -> NDArray[np.intp]:
    """Return all columns."""
    return np.arange(robot.theta_nominal.size)


def planar_columns(robot: RobotModel, with_friction: bool) -> NDArray[np.intp]:
    """Return the three effective parameters of each planar link, and friction if wanted."""
    inertial = [INERTIAL * body + one for body in range(robot.n) for one in EFFECTIVE]
    friction = range(INERTIAL * robot.n, (INERTIAL + FRICTION) * robot.n) if with_friction else ()
    return np.array([*inertial, *friction])


def _arm(robot: RobotModel, seed: int) -> tuple[MujocoArm, Array]:
    truth = true_parameters(robot, seed)
    return MujocoArm(robot, truth, settings=MujocoSettings(period=_PERIOD, seed=seed)), truth


def _thin(values: Array) -> list[Any]:
    rows = np.asarray(values)
    kept: list[Any] = np.round(rows[:: max(1, len(rows) // SHOWN)], 5).tolist()
    return kept


def run_pendulum(seed: int, duration: float) -> dict[str, Any]:
    """Identify the double pendulum offline, by the pseudo-inverse and without a guess (SVA (102), Figures 4 and 5)."""
    robot = robot_of(PENDULUM)
    arm, truth = _arm(robot, seed)
    trace = follow(arm, GravityPid(robot, PidSettings(frequency=25.0)), motion_of(PENDULUM), duration)
    fits: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    for kind in Observation:
        for with_friction in (False, True):
            equations = Equations(robot, planar_columns(robot, with_friction))
            times, y, u = equations.collect(trace, kind, _OFFLINE_EVERY)
            theta, _, rank, _ = np.linalg.lstsq(y.reshape(-1, y.shape[2]), u.reshape(-1), rcond=1e-8)
            predicted = y @ theta
            name = f"{kind.value}, {'with' if with_friction else 'no'} friction"
            fits[name] = {
                "determination": coefficient_of_determination(u, predicted),
                "validation": equations.validate(np.asarray(theta, dtype=np.float64), truth),
                "parameters": y.shape[2],
                "rank": int(rank),
            }
            if kind is Observation.ACCELERATION:
                model = "with friction" if with_friction else "three parameters"
                shown |= {"t": _thin(times), "measured": _thin(u), model: _thin(predicted)}
    shown |= {"motion_t": _thin(trace.t), "q": _thin(trace.q)}
    return {"fits": fits, "shown": shown}


def run_leg(seed: int, duration: float) -> dict[str, Any]:
    """Fit the leg online to a buffer that grows, from a wrong guess (SVA (105) to (107), Figure 6).

    The printed weight of the prior is that of a unit matrix, in SI units; ours is the radius of each parameter's box.
    """
    robot = robot_of(LEG)
    arm, truth = _arm(robot, seed)
    trace = follow(arm, GravityPid(robot, PidSettings(frequency=25.0)), motion_of(LEG), duration)
    equations, rate = Equations(robot, all_columns(robot)), OnlineFitSettings().rate
    scales = {"weights of the box": np.maximum(robot.theta_box.radius, 1e-6), "weights as printed": None}
    found: dict[str, Any] = {}
    for kind, (weights, scale) in itertools.product(Observation, scales.items()):
        times, y, u = equations.collect(trace, kind, round(1.0 / (rate * _PERIOD)))
        fit = OnlineLeastSquares(robot.theta_nominal, robot.n, OnlineFitSettings(is_growing=True), scale)
        computed, inside, outside = [], [], []
        for row, torque in zip(y, u, strict=True):
            theta = fit.solve().theta if fit.samples else robot.theta_nominal
            computed.append(row @ theta)  # with the estimate before this sample
            fit.add(row, torque)
            solution = fit.solve()
            inside.append(solution.determination)
            outside.append(equations.validate(solution.theta, truth))
        found[f"{kind.value}, {weights}"] = {
            "t": times,
            "measured": u,
            "computed": np.array(computed),
            "determination": np.array(inside),
            "validation": np.array(outside),
        }
    guess = equations.validate(robot.theta_nominal, truth)
    return {"fits": found, "validation_of_the_guess": guess}


def run_arm(seed: int, duration: float, observation: str) -> dict[str, Any]:
    """Let the arm tick and tock under computed torque with the gate (SVA (109), Figure 7)."""
    robot = robot_of(ARM)
    arm, _ = _arm(robot, seed)
    settings = OnlineModelSettings(
        observation=Observation(observation),
        gate=GateSettings(inertia_ratio=np.inf),  # the paper's gate asks for buffer and R^2 alone
    )
    controller = OnlineModelController(robot, settings)
    controller.set_model(robot.theta_nominal, robot.theta_box, np.zeros(INERTIAL), robot.payload_prior.box)
    controller.reset()
    history: list[tuple[float, list[float], bool, bool]] = []

    def note(cycle: int) -> None:
        status = controller.status
        if status.model is not None and status.model is not last[0]:
            last[0], fit = status.model, status.model.fit
            history.append((cycle * _PERIOD, fit.determination.tolist(), fit.is_full, status.is_open))

    last: list[object] = [None]
    trace = follow(arm, controller, motion_of(ARM), duration, note)
    opened = next((t for t, _, _, is_open in history if is_open), None)
    error = trace.error
    result: dict[str, Any] = {
        "opened": opened,
        "full": next((t for t, _, is_full, _ in history if is_full), None),
        "t": [one[0] for one in history],
        "determination": [one[1] for one in history],
        "open": [one[3] for one in history],
        "shown": {"t": _thin(trace.t), "q": _thin(trace.q), "error": _thin(error)},
    }
    if opened is not None:
        before = (trace.t > 2.5) & (trace.t < opened)
        after = trace.t > opened + 2.5  # the change of models takes half a second; whole swings
        result["before"], result["after"] = (_errors(error[part]) for part in (before, after))
    return result


def _errors(error: Array) -> dict[str, Any]:
    return {
        "bias": error.mean(axis=0),
        "peak_to_peak": np.ptp(error, axis=0),
        "rms": np.sqrt(np.mean(error**2, axis=0)),
    }


def tree(joints: int, seed: int = 0) -> pin.Model:
    """Return a tree of revolute joints with random axes, placements and bodies.

    From 16 joints on it branches as a humanoid: a spine of a quarter of the joints carries two arms and, at its foot,
    two legs of equal length.
    """
    rng, model = np.random.default_rng((seed, joints)), pin.Model()
    kinds = (pin.JointModelRX, pin.JointModelRY, pin.JointModelRZ)
    spine = joints if joints < _BRANCHES_FROM else joints // 4
    starts = [spine, *(spine + k * (joints - spine) // 4 for k in range(1, 4))]  # of two arms and two legs
    for k in range(joints):
        parent = (spine, spine, 1, 1)[starts.index(k)] if k in starts else k
        placement = pin.SE3(pin.exp3(rng.normal(size=3)), rng.uniform(-0.3, 0.3, 3))
        joint = model.addJoint(parent, kinds[int(rng.integers(3))](), placement, f"joint_{k}")
        com = rng.uniform(-0.1, 0.1, 3)
        model.appendBodyToJoint(joint, pin.Inertia(1.0, com, np.diag([0.02, 0.03, 0.025])), pin.SE3.Identity())
    return model


def run_cost(joints: int, seed: int, rounds: int) -> dict[str, Any]:
    """Time the regressor of a tree in processor time, and compare it with Pinocchio's."""
    model = tree(joints, seed)
    data, rng = model.createData(), np.random.default_rng((seed, joints, 1))
    q, v, a = rng.uniform(-1.5, 1.5, (3, joints))
    batch = TorqueRegressor(model, EffortMeaning.LINK_SIDE)
    many = [np.tile(one, (64, 1)) for one in (q, v, a)]

    inverse_dynamics = linear_inverse_dynamics(model, (q, v, a))
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "algorithm_1": (lambda: regressor_of(inverse_dynamics, joints), 1),
        "pinocchio": (lambda: pin.computeJointTorqueRegressor(model, data, q, v, a), 1),
        "batched": (lambda: batch.evaluate(*many), 64),
    }
    expected = np.array(pin.computeJointTorqueRegressor(model, data, q, v, a))
    ours = batch.evaluate(*many)[0][:, : INERTIAL * joints]
    values = {"batched": ours, "algorithm_1": regressor_of(inverse_dynamics, joints)}
    size = np.abs(expected).max()
    difference = {name: float(np.abs(value - expected).max() / size) for name, value in values.items()}
    seconds = dict.fromkeys(ways, np.inf)
    for _ in range(rounds):
        for name, (call, samples) in ways.items():
            count = 1 if name == "algorithm_1" else max(1, 300 // joints // samples)
            begin = time.process_time()
            for _ in range(count):
                call()
            seconds[name] = min(seconds[name], (time.process_time() - begin) / count / samples)
    return {"seconds": seconds, "difference": difference}


def regressor_of(inverse_dynamics: Callable[[Array], Array], bodies: int) -> Array:
    """Build the regressor (nv, 10 bodies) from inverse dynamics that are linear in the inertial parameters.

    Args:
        inverse_dynamics: Maps inertial parameters, (10 bodies,), to generalised forces, (nv,), at one state.
        bodies: Number of bodies.

    Source: SVA, Algorithm 1: ten evaluations per body, each of which costs a multiple of the number of joints.
    """
    return np.stack([inverse_dynamics(unit) for unit in np.eye(INERTIAL * bodies)], axis=1)


def linear_inverse_dynamics(model: pin.Model, state: State) -> Callable[[Array], Array]:
    """Return the torques at one state as a function of inertial parameters of all bodies, unit parameters included.

    Pinocchio takes no body without mass, so each is added to a body that has one: torques are linear in the parameters.
    """
    changed = model.copy()
    for body in range(1, model.njoints):
        changed.inertias[body] = pin.Inertia(1.0, np.zeros(3), np.eye(3))
    data = changed.createData()
    before = pin.rnea(changed, data, *state).copy()
    plain = changed.inertias[1].toDynamicParameters()

    def evaluate(parameters: Array) -> Array:
        bodies = np.unique(np.flatnonzero(parameters) // INERTIAL)
        for body in bodies:
            one = plain + parameters[INERTIAL * body : INERTIAL * (body + 1)]
            changed.inertias[int(body) + 1] = pin.Inertia.FromDynamicParameters(one)
        tau = pin.rnea(changed, data, *state) - before
        for body in bodies:
            changed.inertias[int(body) + 1] = pin.Inertia.FromDynamicParameters(plain)
        return np.asarray(tau)

    return evaluate


WORK: dict[str, Callable[..., dict[str, Any]]] = {PENDULUM: run_pendulum, LEG: run_leg, ARM: run_arm, COST: run_cost}


def run(experiment: str, **job: Any) -> dict[str, Any]:
    """Execute one run, for an executor."""
    return WORK[experiment](**job)


def jobs(experiments: tuple[str, ...], seeds: int, scale: float = 1.0) -> list[dict[str, Any]]:
    """Return all runs; ``scale`` multiplies :data:`DURATIONS`, seeds differ in parameters and noise."""
    found: list[dict[str, Any]] = []
    for experiment in experiments:
        if experiment == COST:
            found += [{"experiment": COST, "joints": joints, "seed": 0, "rounds": 20} for joints in SIZES]
            continue
        more = [{"observation": one.value} for one in Observation] if experiment == ARM else [{}]
        duration = scale * DURATIONS[experiment]
        found += [
            {"experiment": experiment, "seed": seed, "duration": duration, **one}
            for seed in range(seeds)
            for one in more
        ]
    return found
