"""Experiments of EXCITE section V: exciting motions of a Med7 with a tool, torques of a real one, guiding by hand.

The tool, the posture that our motions start from, the person and the models' errors are our choice: the paper has a
rod of 12 mm, ten persons and no numbers of its models. Times are processor time of one core.

Source: EXCITE sections III to V, Figures 2 to 5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, null_space
from scipy.optimize import OptimizeResult, differential_evolution, minimize

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.estimation.whole_arm import Motion, WholeArmFit, fit_whole_arm
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.excitation.criteria import BaseParameters
from sysid_ros.core.excitation.distances import MissingDistances
from sysid_ros.core.excitation.model import check_clearance
from sysid_ros.core.excitation.planner import base_regressor, condition_number
from sysid_ros.core.excitation.problem import FourierSpace
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.excitation.whole_arm import excitation_model, plan_arm_excitation, prove_motion
from sysid_ros.core.model.inertia import from_com_form, transform_parameters
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import EffortMeaning, RobotModel, tool_transform
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.families import FourierTrajectory, rest_projection
from sysid_ros.papers import names
from sysid_ros.papers.baselines.tool_points import reduce_tool
from sysid_ros.papers.guided_arm import run_guiding

Array = NDArray[np.float64]

TOOL_MASS, TOOL_SIZE = 0.8, np.array([0.03, 0.03, 0.15])
"""Of a box along the tool frame's z [kg, m]."""
TOOL_KNOWN = 0.1
"""Share of its parameters within which the tool is known."""
DURATION, HARMONICS, SAMPLES = 10.0, 5, 200
"""Of the paper's motions: their length [s], L, and samples at 20 Hz."""
RESIDUALS: Mapping[str, tuple[float, ...]] = {
    "ridge fit with gravity direction": (0.148, 0.396, 0.144, 0.389, 0.146, 0.148, 0.122),
    "the same in blocks": (0.149, 0.109, 0.127, 0.209, 0.098, 0.097, 0.122),
    "vendor's own model": (0.74, 0.99, 0.46, 0.81, 0.27, 0.22, 0.32),
    "published SDP code": (0.588, 0.484, 0.256, 0.473, 0.263, 0.152, 0.129),
}
"""RMS torques per joint that others' models left on the other half of a longer recording of a Med7 [Nm]."""
_CLEARANCE = 0.02
"""Distance that searches keep [m]."""
_PENALTIES = (20.0, 400.0)
"""Weights of violations, one solve after the other."""
_ITERATIONS = 400
"""Of a solve."""
_POLISH = 0.3
"""Share of the memetic search's time that is left for its local search."""
_MEMBERS = 3
"""Of its population, per coordinate."""
_FAR = 1.0
"""Distance by which spheres would overlap where a check of distances stops [m]."""
_THIN = 2
"""Every second sample of a recording is shown."""


def assumptions_of(robot: RobotModel, has_tool: bool, law: RobustSettings | None = None) -> Assumptions:
    """Assume an empty hand, or the tool, above the ground."""
    scene, nominal, radius = Scene(ground_height=0.0, payload_spheres=()), np.zeros(10), np.zeros(10)
    if has_tool:
        rotation, origin = placement = tool_transform(robot)
        center = np.array([0.0, 0.0, 0.5 * TOOL_SIZE[2]])
        inertia = TOOL_MASS / 12.0 * np.diag(np.sum(TOOL_SIZE**2) - TOOL_SIZE**2)
        nominal = transform_parameters(from_com_form(TOOL_MASS, center, inertia), rotation, origin)
        radius = TOOL_KNOWN * np.abs(nominal) + np.repeat([0.0, 1e-3, 1e-4], [1, 3, 6])
        corners = np.array(np.meshgrid(*[[-0.5, 0.5]] * 3)).reshape(3, -1).T * TOOL_SIZE + center
        scene = Scene(ground_height=0.0, payload_spheres=reduce_tool(corners, most=4).spheres(robot, placement))
    boxes = robot.theta_box, Box(nominal - radius, nominal + radius)
    return Assumptions(robot, boxes, nominal, scene, law or RobustSettings())


def r_c(information: Array, rows: float = 1.0) -> tuple[float, Array]:
    """Compute ``(|H|_F + |H^-1|_F) / 2`` and its derivative by the Gram matrix, (k, k) each.

    ``H`` is the Gram matrix as printed, or with their number its mean over rows: r_c depends on such factors.

    Source: EXCITE (6).
    """
    values, vectors = np.linalg.eigh(information / rows)
    large, small = np.linalg.norm(values), np.linalg.norm(1.0 / values)
    slope = 0.5 / rows * (values / large - values**-3 / small)
    return 0.5 * float(large + small), (vectors * slope) @ vectors.T


def squared_condition(information: Array) -> tuple[float, Array]:
    """Compute the condition number of a Gram matrix and its derivative, where its extreme eigenvalues are simple."""
    values, vectors = np.linalg.eigh(information)
    least, most = vectors[:, 0], vectors[:, -1]
    value = float(values[-1] / values[0])
    return value, value * (np.outer(most, most) / values[-1] - np.outer(least, least) / values[0])


CRITERIA: Mapping[str, Callable[[Array], tuple[float, Array]]] = {
    names.R_C: r_c,
    names.ONE_STAGE: r_c,
    names.MEAN_R_C: partial(r_c, rows=7.0 * SAMPLES),
}
"""Of searches; the others minimise the condition number."""


class PublishedProblem:
    """The paper's problem: a Fourier series about the straight arm, (9a) to (9g), with (11c) as our spheres.

    Coordinates y are, joint by joint, coordinates of a :class:`FourierSpace` that fulfil the third condition of (9c):
    the series starts at its middle. (9c) is taken with a and b exchanged: as printed the arm does not start at rest.
    """

    def __init__(self, assumptions: Assumptions, criterion: Callable[[Array], tuple[float, Array]]):
        robot = self.robot = assumptions.robot
        self.space = FourierSpace(np.zeros(robot.n), HARMONICS, DURATION, SAMPLES)
        self.base = BaseParameters.of(robot, ())
        self._criterion, self._regressor = criterion, TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE)
        order = np.arange(1.0, HARMONICS + 1.0)
        sine, cosine = rest_projection(HARMONICS)
        self._free = block_diag(np.eye(HARMONICS - 1), null_space((1.0 / order @ cosine)[None]))
        self._pairs = (block_diag(sine, cosine) @ self._free).reshape(2, HARMONICS, -1)  # a and b of a joint by y
        limits, omega = robot.limits, 2.0 * np.pi / DURATION
        reach = omega * np.minimum(limits.q_upper, -limits.q_lower)
        self._sums = (1.0 / order / reach[:, None], np.ones(HARMONICS) / limits.v_max[:, None])  # (9d), (9e)
        self._most = np.minimum(reach[:, None] * order / HARMONICS, limits.v_max[:, None])  # (9f), (9g), (n, L)
        collision = excitation_model(assumptions).collision
        around = (limits.q_lower, limits.q_upper)
        self._distances = MissingDistances(robot, collision, np.zeros(robot.n), _CLEARANCE, around)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.robot.n * self._free.shape[1]

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw a motion as large as (9d) to (9g) allow, (size,)."""
        return self.within_limits(rng.normal(size=self.size))

    def trajectory(self, y: Array) -> FourierTrajectory:
        """Build the trajectory of coordinates (size,)."""
        return self.space.trajectory(self._coordinates(y))

    def usage(self, y: Array) -> Array:
        """Compute the largest share of its limits (9d) to (9g) that each joint uses, (n,)."""
        return np.asarray(np.max([share.max(axis=1) for share, _ in self._shares(y)], axis=0))

    def within_limits(self, y: Array) -> Array:
        """Scale each joint until one of its limits (9d) to (9g) is reached, (size,)."""
        return np.asarray((y.reshape(self.robot.n, -1) / self.usage(y)[:, None]).ravel())

    def least_distance(self, y: Array, samples: int = 2000) -> float:
        """Compute the smallest distance between spheres and to the ground at samples [m]."""
        times = np.linspace(0.0, DURATION, samples)
        return float(self._distances.evaluate(self.trajectory(y).sample(times)[0]).min())

    def cost(self, y: Array) -> tuple[float, Array]:
        """Compute the logarithm of the criterion and its derivative, (size,)."""
        states = self.space.states(self._coordinates(y))
        regressor = self._regressor.evaluate(*states)
        rows = regressor[..., self.base.columns].reshape(-1, self.base.columns.size)
        information = rows.T @ rows
        floor = 1e-9 * np.trace(information) * np.eye(len(information))  # of a motion that shows too little
        value, slope = self._criterion(information + floor)
        weight = np.zeros_like(regressor)
        weight[..., self.base.columns] = (2.0 / value * rows @ slope).reshape(*regressor.shape[:2], -1)
        return float(np.log(value)), self._pull_back(*self._regressor.pull_back(*states, weight))

    def objective(self, y: Array, has_distances: bool, penalty: float) -> tuple[float, Array]:
        """Add squares of violations of (9d) to (9g), and with distances of (11c), and their derivatives."""
        value, gradient = self.cost(y)
        gradient = gradient.reshape(self.robot.n, -1)
        for share, derivative in self._shares(y):
            beyond = np.maximum(share - 1.0, 0.0)
            value += penalty * float((beyond**2).sum())
            gradient = gradient + 2.0 * penalty * np.einsum("nk,nkp->np", beyond, derivative)
        if has_distances:
            q = self.space.states(self._coordinates(y))[0]
            missing, by_q = self._distances.penalty(q)
            value += penalty * missing
            gradient = gradient + penalty * self._pull_back(by_q, *np.zeros((2, *q.shape))).reshape(gradient.shape)
        return value, gradient.ravel()

    def _coordinates(self, y: Array) -> Array:
        return np.asarray((y.reshape(self.robot.n, -1) @ self._free.T).ravel())

    def _pull_back(self, dq: Array, dv: Array, da: Array) -> Array:
        return np.asarray((self.space.pull_back(dq, dv, da).reshape(self.robot.n, -1) @ self._free).ravel())

    def _shares(self, y: Array) -> Iterator[tuple[Array, Array]]:
        """Compute shares of the limits that are used, (n, k), and their derivatives, (n, k, size / n)."""
        pairs = np.einsum("klp,np->nkl", self._pairs, y.reshape(self.robot.n, -1))
        length = np.maximum(np.hypot(pairs[:, 0], pairs[:, 1]), 1e-12)
        by_length = np.einsum("nkl,klp->nlp", pairs / length[:, None], self._pairs)
        for weight in self._sums:
            yield (length * weight).sum(axis=1)[:, None], np.einsum("nlp,nl->np", by_length, weight)[:, None]
        for values, derivative in zip(pairs.swapaxes(0, 1), self._pairs, strict=True):
            yield np.abs(values) / self._most, (np.sign(values) / self._most)[:, :, None] * derivative


class _TimeIsOver(Exception):
    pass


def search_published(problem: PublishedProblem, seconds: float, seed: int, stages: Sequence[bool]) -> tuple[Array, int]:
    """Search from random starts until the time is over, in stages without and with distances (EXCITE IV-A).

    Returns:
        Coordinates of the best motion within (9d) to (9g) that touches nothing, and the number of starts.
    """
    rng, end = np.random.default_rng(seed), time.process_time() + seconds
    best, least, starts = np.zeros(problem.size), np.inf, 0

    def follow(intermediate_result: OptimizeResult) -> None:
        if time.process_time() > end:
            raise StopIteration

    options = {"maxiter": _ITERATIONS, "maxcor": 30}
    while time.process_time() < end:
        y, starts = problem.draw(rng), starts + 1
        for has_distances in stages:
            for penalty in _PENALTIES[0 if has_distances else 1 :]:
                given = (has_distances, penalty)
                y = minimize(problem.objective, y, given, "L-BFGS-B", True, options=options, callback=follow).x
        y = y / max(1.0, problem.usage(y).max())
        if problem.least_distance(y) > 0.0 and (value := problem.cost(y)[0]) < least:
            best, least = y, value
    return best, starts


def search_memetic(problem: PublishedProblem, seconds: float, seed: int) -> tuple[Array, int]:
    """Search by differential evolution, then locally without derivatives, until the time is over.

    It stands in for the memetic algorithm that the paper compares with. Members are scaled into (9d) to (9g).

    Returns:
        As :func:`search_published`, with the number of evaluations.
    """
    end = time.process_time() + seconds
    best, least, count = np.zeros(problem.size), np.inf, 0

    def evaluate(y: Array) -> float:
        nonlocal best, least, count
        if time.process_time() > end:
            raise _TimeIsOver
        y, count = problem.within_limits(y), count + 1
        value = problem.objective(y, True, _PENALTIES[-1])[0]
        if value < least and problem.least_distance(y, SAMPLES) > 0.0:
            best, least = y, value
        return value

    def is_late(*_: object) -> bool:
        return time.process_time() > end - _POLISH * seconds

    box = [(-1.0, 1.0)] * problem.size
    try:
        found = differential_evolution(
            evaluate, box, popsize=_MEMBERS, seed=seed, maxiter=10**6, polish=False, callback=is_late
        )
        minimize(evaluate, found.x, method="Powell")
    except _TimeIsOver:
        pass
    return best, count


def run_motion(way: str, seconds: float, seed: int) -> dict[str, Any]:
    """Search for a motion of the arm with the tool, check it densely, and try to certify it."""
    robot = load_robot(names.EXCITE_ROBOT)
    assumptions, begin = assumptions_of(robot, True), time.process_time()
    if way == names.CERTIFIED:
        settings = ExcitationSettings.for_arm(
            DURATION, parameters="inertial", time_budget=seconds, seed=seed, wanted_condition_number=0.0
        )
        found = plan_arm_excitation(assumptions, robot.home, settings, clock=time.process_time)
        path, tries = found.plans[0].trajectory, found.starts[0]
    else:
        criterion = CRITERIA.get(way, squared_condition)
        problem, stages = PublishedProblem(assumptions, criterion), (True,) if way == names.ONE_STAGE else (False, True)
        if way == names.MEMETIC:
            y, tries = search_memetic(problem, seconds, seed)
        else:
            y, tries = search_published(problem, seconds, seed, stages)
        path = problem.trajectory(y)
    spent = time.process_time() - begin
    return {"seconds": spent, "tries": tries, **check_motion(assumptions, path)}


def check_motion(assumptions: Assumptions, path: Trajectory) -> dict[str, Any]:
    """Return criteria of a motion, the largest shares of its limits at dense samples, and what its proof says.

    Positions and speeds are exact extrema; torques are for the worst parameters in the boxes, without feedback.
    """
    robot, model = assumptions.robot, excitation_model(assumptions)
    base, limits = BaseParameters.of(robot, ()), robot.limits
    times = np.linspace(0.0, path.duration, 2001)
    states = path.sample(times)
    middle, half = 0.5 * (limits.q_upper + limits.q_lower), 0.5 * (limits.q_upper - limits.q_lower)
    free = check_clearance(robot, model.collision, np.zeros(robot.n), -_FAR, times, states[0])  # all pairs
    rows = TorqueRegressor(robot).evaluate(*path.sample(times[5::10]))[..., base.columns].reshape(-1, base.columns.size)
    seen = base_regressor(robot, base, [path])
    try:
        prove_motion(assumptions, path)
        proof = "certified"
    except PlanRejected as refusal:
        proof = f"no: {refusal.limit.value}"
    except BoundNotAvailable:
        proof = "no: no tracking bound"
    return {
        "r_c": r_c(rows.T @ rows)[0],
        "condition_number": condition_number(seen.T @ seen),
        "position": float((np.abs(np.array(path.position_extrema()) - middle) / half).max()),
        "velocity": float((np.abs(path.velocity_extrema()) / limits.v_max).max()),
        "acceleration": float((np.abs(path.acceleration_extrema()) / limits.a_max).max()),
        "torque": float((model.torque_demand.evaluate(*states) / limits.tau_held).max()),
        "distance": min(free.values()) - _FAR,
        "proof": proof,
    }


def read_samples(path: Path, prefix: str = "fast_") -> tuple[SampleBlock, Array | None]:
    """Read an NPZ file with arrays ``t``, ``q``, ``tau`` in SI units behind a prefix.

    Returns:
        Samples, and the external torque that the arm's own controller reports, (N, n) [Nm], where the file has it.

    Raises:
        SysidError: An array is missing.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name.removeprefix(prefix): file[name] for name in file.files if name.startswith(prefix)}
    if not {"t", "q", "tau"} <= arrays.keys():
        raise SysidError(f"{path}: no arrays {prefix}t, {prefix}q and {prefix}tau")
    t, q, tau = (np.asarray(arrays[name], dtype=float) for name in ("t", "q", "tau"))
    stamps = np.round((t - t[0]) * 1e9).astype(np.int64)
    block = SampleBlock(stamps, np.arange(len(t)), q, np.gradient(q, t, axis=0), tau)
    return block, arrays.get("tau_ext_kuka")


def part_of(block: SampleBlock, index: NDArray[np.intp]) -> SampleBlock:
    """Return some of the samples; where they do not follow each other, the stamps show a gap."""
    return SampleBlock(*(getattr(block, name)[index] for name in ("stamps", "sequence", "q", "v", "tau")))


def run_torques(recording: str) -> dict[str, Any]:
    """Predict each half of a recording of a Med7 by models: as described, its controller's, fitted to the other half.

    What is slow is below 3 Hz: the motion; vibrations above it are explained by no rigid model.
    """
    robot = load_robot(names.EXCITE_ROBOT)
    block, external = read_samples(Path(recording))
    halves = [part_of(block, index) for index in np.array_split(np.arange(len(block)), 2)]
    motions = [Motion.of(half, robot) for half in halves]
    fits = [fit_whole_arm(robot, [one]) for one in motions]
    found: dict[str, list[Array]] = {}
    for half, motion, fit in zip(halves, motions, fits[::-1], strict=True):
        models = {names.URDF: WholeArmFit.nominal(robot), names.IDENTIFIED: fit}
        predicted = {name: model.predict(robot, motion) for name, model in models.items()}
        if external is not None:
            own = replace(half, tau=external[np.searchsorted(block.stamps, half.stamps)])
            predicted[names.CONTROLLER] = motion.tau - Motion.of(own, robot).tau
        bodies = replace(fit, friction=0.0 * fit.friction).predict(robot, motion)
        start = 1e-9 * float(half.stamps[0] - block.stamps[0])
        parts = {"t": motion.seconds + start, "v": motion.v, "measured": motion.tau}
        parts |= {"friction": motion.slow(motion.tau - bodies), **predicted}
        parts |= {f"slow {name}": motion.slow(motion.tau - torque) for name, torque in predicted.items()}
        for name, values in parts.items():
            found.setdefault(name, []).append(values)
    shown = {name: np.concatenate(parts) for name, parts in found.items()}
    shared = [name for name in (names.URDF, names.CONTROLLER, names.IDENTIFIED) if name in shown]
    errors = {name: (shown["measured"] - shown[name], shown.pop(f"slow {name}")) for name in shared}
    return {
        "joints": robot.joint_names,
        "duration": float(block.seconds[-1]),
        "rms": {name: [np.sqrt(np.mean(one**2, axis=0)) for one in pair] for name, pair in errors.items()},
        "largest": {name: [np.abs(one).max(axis=0) for one in pair] for name, pair in errors.items()},
        "laws": [fit.friction for fit in fits],
        "shown": {name: np.round(values[::_THIN], 4) for name, values in shown.items()},
    }


WORK: dict[str, Callable[..., dict[str, Any]]] = {
    names.MOTIONS: run_motion,
    names.TORQUES: run_torques,
    names.GUIDING: run_guiding,
}


def run(experiment: str, **job: Any) -> dict[str, Any]:
    """Execute one run, for an executor."""
    return WORK[experiment](**job)


def jobs(experiments: Sequence[str], seconds: float, recording: str) -> list[dict[str, Any]]:
    """Return the searches, of so much time each, and the run on a recording, if there is one."""
    searches = names.EXCITE_WAYS if names.MOTIONS in experiments else ()
    found: list[dict[str, Any]] = [
        {"experiment": names.MOTIONS, "way": way, "seconds": seconds, "seed": 0} for way in searches
    ]
    if names.TORQUES in experiments and recording:
        found.append({"experiment": names.TORQUES, "recording": recording})
    return found


def guiding_jobs(entries: Sequence[Mapping[str, Any]], seeds: int) -> list[dict[str, Any]]:
    """Return the runs of guiding, with residuals of the vendor's model, and of ours, slow, where a run has them."""
    measured = [entry["result"] for entry in entries if entry["job"]["experiment"] == names.TORQUES]
    own = measured[0]["rms"][names.IDENTIFIED][1] if measured else RESIDUALS["the same in blocks"]
    rms = {model: RESIDUALS["vendor's own model"] for model in names.GUIDING_MODELS}
    rms[names.IDENTIFIED] = tuple(round(float(one), 3) for one in own)
    return [
        {"experiment": names.GUIDING, "model": model, "seed": seed, "rms": rms[model]}
        for seed in range(seeds)
        for model in names.GUIDING_MODELS
    ]
