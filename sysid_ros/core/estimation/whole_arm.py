"""All bodies, friction, direction of gravity and torque lag of an arm, by least squares around its nominal model.

Torques below :data:`SLOW`, as means over :data:`MEAN_TIME`, are ``W(q, v, a; g) theta + friction``, all later than the
positions by the same lag. That is linear in the parameters and the friction terms, and nearly so in the direction of
gravity, so that a few Gauss-Newton steps solve it, for every lag of a grid. Deviations from the nominal model are
weighted like measurements (ridge), for the last body weakly, since it may carry a tool. The weight, the lag, and the
friction terms of a joint are chosen on held-out blocks. It gives no bounds: the set-membership estimator does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.friction_law import SIMPLE, FrictionLaw, follow_directions
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]
Index = NDArray[np.intp]

MEAN_TIME = 0.1
"""Torques are compared as means over so much time [s]."""
SLOW = 3.0
"""Torques count below this frequency [Hz]: motions are below it, vibration above."""
LAGS = np.arange(0.0, 0.1001, 0.004)
"""Lags of the torques that are tried [s]."""
_SHARES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Standard deviations of inertial parameters around the nominal ones, relative to each body's scale [-]; the smallest
is taken that explains data which were not fitted as well as the best, to one standard error."""
_TILT, _FRICTION, _TOOL = 0.05, 0.3, 0.2
"""Standard deviations of the direction of gravity [rad], of friction [Nm for a column of size 1], or its largest in the
box of the arm where that is more, and of a tool on the last body, over the radius of the payload prior [-]."""
_SMOOTHING = 0.05
"""Positions are fitted by local polynomials over so much time on either side [s]."""
_BLOCK, _FOLDS = 1.0, 5
"""Length of the blocks whose residuals are compared [s], less in short recordings; runs of blocks left out in turns."""
_MOST_SAMPLES, _CHUNK = 20000, 4000
"""With more samples every second, third, ... counts, with the mean of the torques around it; so many are worked on
together, which limits the memory."""
_SIGNIFICANCE = 2.0
"""A friction term must improve held-out blocks by this many standard errors, or equally improbably with few blocks."""
_STAMP_JITTER = 1e-3
"""Stamps that were made where data arrive are off by as much [s]; a jump that this explains is none."""
_NOISE_FLOOR = 1e-3
"""Smallest standard deviation of a torque [Nm]."""
_SMALLEST_MASS, _SMALLEST_LENGTH = 1.0, 0.1
"""Floors of the scale of a body [kg, m]: a light body may carry an unknown tool."""


@dataclass(frozen=True)
class Motion:
    """Smoothed samples of one or more contiguous pieces.

    Attributes:
        pieces: Contiguous samples.
        seconds: Times, (N,) [s].
        q: Positions, (N, n) [rad].
        v: Velocities, (N, n) [rad/s].
        a: Accelerations, (N, n) [rad/s^2].
        tau: Measured torques, (N, n) [Nm].
        load: Load of the hand, about the frame of the last joint, (10,); None for the empty hand.
        notices: Omitted samples, a sentence each.
    """

    pieces: tuple[slice, ...]
    seconds: Array
    q: Array
    v: Array
    a: Array
    tau: Array
    load: Array | None = None
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, block: SampleBlock, robot: RobotModel, load: Array | None = None) -> Motion:
        """Cut samples where some are lost, and smooth the positions of each piece.

        A piece ends at a step longer than 1.5 median steps, and where positions jump: by more than three times the
        largest planned acceleration and the encoder's steps allow.

        Raises:
            SysidError: No piece is long enough to be smoothed.
        """
        seconds = block.seconds
        period = float(np.median(np.diff(seconds))) if len(seconds) > 1 else np.inf
        reach, stride = max(int(round(_SMOOTHING / period)), 3), -(-len(seconds) // _MOST_SAMPLES)
        kept: list[tuple[Array, ...]] = []
        notices: list[str] = []
        cuts = _find_cuts(seconds, block.q, 3.0 * robot.limits.a_max, robot.sensors.position_resolution)
        if len(cuts):
            first = seconds[cuts[0]]
            notices.append(f"cut at {len(cuts)} places where samples are missing, the first at {first:.4g} s")
        sums = np.cumsum(np.pad(block.tau, ((1, 0), (0, 0))), axis=0)
        for start, stop in itertools.pairwise([0, *cuts, len(seconds)]):
            if stop - start < 4 * reach:
                continue
            centers = np.arange(start + reach, stop - reach, stride)
            low = centers - (stride - 1) // 2
            tau = (sums[low + stride] - sums[low]) / stride
            kept.append((seconds[centers], *_smooth(seconds, block.q, reach, centers), tau))
        if not kept:
            raise _too_few(len(seconds), 4 * reach)
        edges = np.cumsum([0, *(len(part[0]) for part in kept)]).tolist()
        pieces = tuple(slice(*pair) for pair in itertools.pairwise(edges))
        times, q, v, a, tau = (np.concatenate(values) for values in zip(*kept, strict=True))
        return cls(pieces, times, q, v, a, tau, load, tuple(notices))

    @cached_property
    def turned(self) -> Array:
        """Directions of friction before sliding, (N, n) [-]; see :func:`.friction_law.follow_directions`."""
        return np.concatenate([follow_directions(self.q[part], self.v[part.start]) for part in self.pieces])

    def delayed(self, values: Array, lag: float) -> Array:
        """Return values (N, n) a lag [s] earlier, linearly interpolated and held at the ends."""
        result = np.empty_like(values)
        for part in self.pieces:
            times = self.seconds[part]
            result[part] = np.stack([np.interp(times - lag, times, column) for column in values[part].T], axis=1)
        return result

    def slow(self, values: Array) -> Array:
        """Return values (N, n) low-passed at :data:`SLOW`, each piece by itself."""
        from scipy.signal import butter, sosfiltfilt  # takes a second to load

        share = SLOW * 2.0 * float(np.median(np.diff(self.seconds)))
        sections, result = butter(4, min(share, 0.9), output="sos"), np.empty_like(values)
        for part in self.pieces:
            count = len(values[part])
            result[part] = sosfiltfilt(sections, values[part], axis=0, padlen=min(15, count - 1))
        return result


def _find_cuts(seconds: Array, q: Array, acceleration: Array, resolution: Array) -> list[int]:
    """Return the samples that a new piece begins with."""
    steps = np.diff(seconds)
    is_cut = steps > 1.5 * np.median(steps)
    v = np.diff(q, axis=0) / steps[:, None]
    # Each reading is off by up to half a step of the encoder, which at 1 kHz alone exceeds any acceleration, and its
    # stamp by the speed around it.
    speed = np.median(np.lib.stride_tricks.sliding_window_view(np.abs(np.pad(v, ((1, 1), (0, 0)), "edge")), 3, 0), -1)
    blurred = resolution + _STAMP_JITTER * np.maximum(speed[1:], speed[:-1])
    allowed = (0.5 * (steps[1:] + steps[:-1]))[:, None] * acceleration
    allowed = allowed + blurred * (1.0 / steps[1:] + 1.0 / steps[:-1])[:, None]
    jumps = np.any(np.abs(np.diff(v, axis=0)) > allowed, axis=1)
    is_cut[1:] |= jumps & np.roll(jumps, 1)
    return [int(k) + 1 for k in np.flatnonzero(is_cut)]


def _smooth(seconds: Array, q: Array, reach: int, centers: Index) -> tuple[Array, Array, Array]:
    """Return position, velocity and acceleration at some samples by local polynomials of degree four."""
    found = np.empty((3, len(centers), q.shape[1]))
    for first in range(0, len(centers), _CHUNK):
        part = slice(first, first + _CHUNK)
        near = centers[part, None] + np.arange(-reach, reach + 1)
        offsets = seconds[near] - seconds[centers[part], None]
        scale = float(offsets[:, -1].mean())
        powers = np.stack([(offsets / scale) ** k for k in range(5)], axis=2)
        across = powers.transpose(0, 2, 1)
        fitted = np.linalg.solve(across @ powers, across @ q[near])[:, :3]
        found[:, part] = fitted.transpose(1, 0, 2) / np.array([1.0, scale, 0.5 * scale**2])[:, None, None]
    return found[0], found[1], found[2]


@dataclass(frozen=True)
class WholeArmFit:
    """Parameters of an arm that explain measured torques.

    Attributes:
        theta: Inertial parameters, (10 n,); a tool that is no load of its recording is part of the last body.
        friction: Parameters of the friction law of each joint, (n, K); zero for terms that a joint does not need.
        law: The friction law.
        terms: Which terms each joint has, (n, K).
        gravity: Gravity in the model's world, (3,) [m/s^2].
        tilt: Angle between it and its nominal direction [rad].
        torque_lag: Lag of all torques [s].
        noise: Root mean square of the residuals of means over :data:`MEAN_TIME`, (n,) [Nm].
        prior_share: How far inertial parameters may be from the nominal ones, relative to a body's scale [-]: chosen.
    """

    theta: Array
    friction: Array
    law: FrictionLaw
    terms: NDArray[np.bool_]
    gravity: Array
    tilt: float
    torque_lag: float
    noise: Array
    prior_share: float

    @classmethod
    def nominal(cls, robot: RobotModel) -> WholeArmFit:
        """Return the nominal bodies without friction, tilt and lag, in place of a fit."""
        law, none = FrictionLaw(), np.zeros((robot.n, len(SIMPLE)))
        gravity, theta = np.array(robot.pin_model.gravity.linear), robot.theta_nominal[: INERTIAL * robot.n]
        return cls(theta, none, law, none > 0.0, gravity, 0.0, 0.0, none[:, 0], 0.0)

    def predict(self, robot: RobotModel, motion: Motion) -> Array:
        """Compute the torques that the sensors should show, (N, n) [Nm]."""
        model = pin.Model(robot.pin_model)
        model.gravity = pin.Motion(self.gravity, np.zeros(3))
        theta = self.theta + _last(robot, motion.load)
        friction = np.einsum("tjk,jk->tj", _along(robot, self.law, motion)[1], self.friction)
        return motion.delayed(_rigid(model, motion, theta) + friction, self.torque_lag)


def _rigid(model: pin.Model, motion: Motion, theta: Array) -> Array:
    regressor, states = TorqueRegressor(model), (motion.q, motion.v, motion.a)
    parts = [slice(first, first + _CHUNK) for first in range(0, len(motion.q), _CHUNK)]
    return np.concatenate([regressor.inertial(*(one[part] for one in states)) @ theta for part in parts])


def _last(robot: RobotModel, load: Array | None) -> Array:
    """Return the parameters of all bodies, (10 n,), of which the last holds a load and the others nothing."""
    return np.concatenate([np.zeros(INERTIAL * (robot.n - 1)), np.zeros(INERTIAL) if load is None else load])


def _along(robot: RobotModel, law: FrictionLaw, motion: Motion) -> tuple[Array, Array]:
    """Return the nominal arm's torque for the load, (N, n) [Nm], and the columns of the friction law, (N, n, K)."""
    nominal = _rigid(robot.pin_model, motion, robot.theta_nominal[: INERTIAL * robot.n])
    columns = law.columns(motion.q, motion.v, motion.a, motion.turned, nominal)
    return _rigid(robot.pin_model, motion, _last(robot, motion.load)), columns


class WholeArmProblem:
    """Means of the regressors of motions, affine in gravity, and of the columns of the friction law.

    The unknowns are [theta (10 n), tilt (2), friction (n K)].

    Attributes:
        by_gravity: Inertial columns without gravity, and what one unit of each of its components adds, (4, M, n, 10 n).
        columns: Columns of the friction law, (M, n, K).
        torque: Measured torques less the loads', for each of :data:`LAGS`, (L, M, n) [Nm].
        block: Number of the block each mean is in, (M,).
    """

    def __init__(self, robot: RobotModel, motions: Sequence[Motion], law: FrictionLaw):
        self.robot, self.law = robot, law
        along = np.array(robot.pin_model.gravity.linear)
        self.strength = float(np.linalg.norm(along))
        along /= self.strength
        first = np.cross(along, np.eye(3)[int(np.argmin(np.abs(along)))])
        first /= np.linalg.norm(first)
        self.axes = np.stack([first, np.cross(along, first), along])
        """Two axes across nominal gravity in the model's world and one along it, as rows, (3, 3)."""
        found: list[tuple[Array, Array, Array]] = []
        blocks: list[Index] = []
        ends = [motion.seconds[[part.start, part.stop - 1]] for motion in motions for part in motion.pieces]
        length = min(_BLOCK, float(np.ptp(ends, axis=1).sum()) / (2 * _FOLDS))
        for motion in motions:
            load, columns = _along(robot, law, motion)
            slow = motion.slow(np.concatenate([(motion.tau - load)[:, :, None], columns], axis=2))
            late = np.stack([motion.delayed(slow[:, :, 0], -lag) for lag in LAGS])
            for part in motion.pieces:
                elapsed = motion.seconds[part] - motion.seconds[part.start] + 1e-6
                count = int((elapsed[-1] - LAGS[-1]) / MEAN_TIME)  # later torques are beyond the piece
                if count < 1:
                    continue
                starts = part.start + np.searchsorted(elapsed, MEAN_TIME * np.arange(count + 1))
                last = int(blocks[-1][-1]) if blocks else -1
                blocks.append(last + 1 + (MEAN_TIME / length * np.arange(count) + 1e-6).astype(int))
                found += [self._means(motion, late, slow[:, :, 1:], starts[k : k + 200]) for k in range(0, count, 199)]
        if not found:
            raise _too_few(sum(len(motion.seconds) for motion in motions), _FOLDS)
        self.by_gravity = np.concatenate([part[0] for part in found], axis=1)
        self.columns = np.concatenate([part[1] for part in found])
        self.torque = np.concatenate([part[2] for part in found], axis=1)
        self.block = np.concatenate(blocks)

    def _means(self, motion: Motion, late: Array, columns: Array, starts: Index) -> tuple[Array, Array, Array]:
        """Return the means between samples (K + 1,): (4, K, n, 10 n), (K, n, P), (L, K, n)."""
        part, robot = slice(int(starts[0]), int(starts[-1])), self.robot
        states, index, size = (motion.q[part], motion.v[part], motion.a[part]), starts[:-1] - starts[0], np.diff(starts)
        by_gravity = []
        for gravity in (np.zeros(3), *np.eye(3)):
            model = pin.Model(robot.pin_model)
            model.gravity = pin.Motion(gravity, np.zeros(3))
            by_gravity.append(np.add.reduceat(TorqueRegressor(model).inertial(*states), index) / size[:, None, None])
        by_gravity[1:] = [one - by_gravity[0] for one in by_gravity[1:]]
        means = np.add.reduceat(columns[part], index) / size[:, None, None]
        return np.array(by_gravity), means, np.add.reduceat(late[:, part], index, axis=1) / size[:, None]

    @property
    def start(self) -> Array:
        """The nominal model without tilt and friction, but with armature where the law has it."""
        n, k = self.columns.shape[1:]
        friction = np.zeros((n, k))
        if self.law.has_armature:
            friction[:, len(SIMPLE)] = self.robot.friction(self.robot.theta_nominal)[:, 2]
        return np.concatenate([self.robot.theta_nominal[: INERTIAL * n], np.zeros(2), friction.ravel()])

    def unpack(self, x: Array) -> tuple[Array, Array, Array]:
        """Split the unknowns into theta, tilt and friction (n, K)."""
        n, k = self.columns.shape[1:]
        theta, tilt, friction = np.split(x, [INERTIAL * n, INERTIAL * n + 2])
        return theta, tilt, friction.reshape(n, k)

    def gravity(self, tilt: Array) -> Array:
        """Return gravity (3,) for its two tilts (2,) [rad]."""
        direction = np.append(tilt, np.sqrt(max(1.0 - float(tilt @ tilt), 0.0)))
        return np.asarray(self.strength * direction @ self.axes)

    def torque_at(self, lag: float) -> Array:
        """Return the means of the torques this lag later [s], (M, n) [Nm]."""
        k = int(np.clip(np.searchsorted(LAGS, lag) - 1, 0, len(LAGS) - 2))
        share = (lag - LAGS[k]) / (LAGS[k + 1] - LAGS[k])
        return np.asarray((1.0 - share) * self.torque[k] + share * self.torque[k + 1])

    def predict(self, x: Array) -> Array:
        """Compute the means of the torques that the sensors should show, (M, n) [Nm]."""
        theta, tilt, friction = self.unpack(x)
        rigid = np.tensordot(np.append(1.0, self.gravity(tilt)), self.by_gravity, 1) @ theta
        return np.asarray(rigid + np.einsum("tjk,jk->tj", self.columns, friction))

    def linearise(self, x: Array) -> Array:
        """Compute the derivatives of the prediction by the unknowns, (M, n, P)."""
        theta, tilt, _ = self.unpack(x)
        n, k = self.columns.shape[1:]
        jacobian = np.zeros((*self.columns.shape[:2], x.size))
        jacobian[:, :, : theta.size] = np.tensordot(np.append(1.0, self.gravity(tilt)), self.by_gravity, 1)
        down = -tilt / np.sqrt(max(1.0 - float(tilt @ tilt), 1e-12))
        across = self.strength * (self.axes[:2] + down[:, None] * self.axes[2])
        jacobian[:, :, theta.size : theta.size + 2] = (across @ (self.by_gravity[1:] @ theta).reshape(3, -1)).T.reshape(
            *self.columns.shape[:2], 2
        )
        blocks = jacobian[:, :, theta.size + 2 :].reshape(*self.columns.shape[:2], n, k)
        blocks[:, np.arange(n), np.arange(n)] = self.columns
        return jacobian


def fit_whole_arm(robot: RobotModel, motions: Sequence[Motion], law: FrictionLaw | None = None) -> WholeArmFit:
    """Fit all bodies, friction, tilt and lag to measured torques.

    Args:
        robot: The arm and its nominal parameters.
        motions: Smoothed samples.
        law: The friction law; the simple one by default.

    Raises:
        SysidError: The motions are too short.
    """
    return _Fitting(WholeArmProblem(robot, motions, law or FrictionLaw())).run()


class _Fitting:
    """Gauss-Newton steps with weights chosen on held-out blocks."""

    def __init__(self, problem: WholeArmProblem, terms: NDArray[np.bool_] | None = None):
        self.problem = problem
        count = (problem.robot.n, len(problem.law.names))
        self.terms = np.ones(count, dtype=bool) if terms is None else terms
        self.noise = np.maximum(np.std(problem.torque[0], axis=0), _NOISE_FLOOR)
        blocks = int(problem.block[-1]) + 1
        if blocks < _FOLDS or len(problem.block) < 2 * _FOLDS:
            raise SysidError(
                f"{len(problem.block) * MEAN_TIME:.1f} s of motion in one piece or more are too short for a fit: "
                f"expected {2 * _FOLDS * MEAN_TIME:.1f} s or more; record for longer"
            )
        fold = problem.block * _FOLDS // blocks  # runs of blocks, since a fit must hold for other motions, too
        self.folds = [np.flatnonzero(fold == k) for k in range(_FOLDS)]
        self.share, self.lag = _SHARES[2], 0.0
        robot, friction = problem.robot, np.full(problem.robot.n, _FRICTION)
        if robot.sensors.effort_meaning.has_friction:
            friction = np.maximum(friction, np.abs(robot.friction(robot.theta_box.upper)).max(axis=1))
        self.scale, self.tool = _body_scales(robot), np.zeros(INERTIAL * robot.n)
        self.tool[robot.inertial_slice(robot.n)] = _TOOL * robot.payload_prior.box.radius
        self.friction = np.where(self.terms, friction[:, None], 1e-9).ravel()
        self.held_out = np.zeros_like(problem.torque[0])
        """Residuals of the means that were left out, (M, n) [Nm]."""

    def run(self) -> WholeArmFit:
        """Solve, and compute the residuals of held-out blocks."""
        problem, x = self.problem, self.problem.start
        for _ in range(5):
            x = self._step(x)
        theta, tilt, friction = problem.unpack(x)
        angle = float(np.arcsin(min(float(np.linalg.norm(tilt)), 1.0)))
        gravity = problem.gravity(tilt)
        return WholeArmFit(theta, friction, problem.law, self.terms, gravity, angle, self.lag, self.noise, self.share)

    def _step(self, x: Array) -> Array:
        jacobian, problem = self.problem.linearise(x), self.problem
        offset = jacobian @ x - problem.predict(x)
        rows = jacobian / self.noise[:, None]
        flat = [rows[fold].reshape(-1, x.size) for fold in self.folds]
        grams = np.array([part.T @ part for part in flat])
        self.lag = self._find_lag(flat, grams, (problem.torque + offset) / self.noise)
        target = problem.torque_at(self.lag) + offset  # of the unknowns themselves
        sides = np.array([
            part.T @ (target / self.noise)[fold].ravel() for part, fold in zip(flat, self.folds, strict=True)
        ])  # fmt: skip
        candidates = []
        for share in _SHARES:
            held_out = np.empty_like(target)
            for k, fold in enumerate(self.folds):
                found = self._solve(grams.sum(0) - grams[k], sides.sum(0) - sides[k], share)
                held_out[fold] = target[fold] - jacobian[fold] @ found
            squares = np.sum((held_out / self.noise) ** 2, axis=1)
            candidates.append((share, np.array([squares[fold].mean() for fold in self.folds]), held_out))
        best = min(candidates, key=lambda candidate: float(candidate[1].mean()))[1]

        def is_as_good(costs: Array) -> bool:
            worse = costs - best
            return bool(worse.mean() <= worse.std(ddof=1) / np.sqrt(len(worse)))

        # The strongest prior that the data do not separate from the best one: other motions excite more than these.
        self.share, _, self.held_out = next(entry for entry in candidates if is_as_good(entry[1]))
        result = self._solve(grams.sum(0), sides.sum(0), self.share)
        self.noise = np.maximum(np.sqrt(np.mean((target - jacobian @ result) ** 2, axis=0)), _NOISE_FLOOR)
        return result

    def _find_lag(self, flat: list[Array], grams: Array, targets: Array) -> float:
        """Return the lag that explains held-out blocks best, all joints alike, refined by a parabola [s]."""
        count, squares = len(LAGS), np.zeros((len(LAGS), targets.shape[2]))
        wanted = [targets[:, fold].reshape(count, -1).T for fold in self.folds]
        sides = np.array([part.T @ one for part, one in zip(flat, wanted, strict=True)])  # (folds, P, L)
        for k, part in enumerate(flat):
            found = self._solve(grams.sum(0) - grams[k], sides.sum(0) - sides[k], self.share)
            rest = wanted[k] - part @ found
            squares += np.sum(rest.reshape(-1, targets.shape[2], count) ** 2, axis=0).T
        costs = np.log(squares).sum(axis=1)
        k = int(np.argmin(costs))
        if k in (0, count - 1):
            return float(LAGS[k])
        before, middle, after = costs[k - 1 : k + 2]
        shift = 0.5 * (before - after) / max(before - 2.0 * middle + after, 1e-12)
        return float(LAGS[k] + np.clip(shift, -0.5, 0.5) * (LAGS[1] - LAGS[0]))

    def _solve(self, gram: Array, side: Array, share: float) -> Array:
        """Solve the normal equations with the prior; for one right-hand side (P,) or several (P, L)."""
        bodies, start = np.hypot(share * self.scale, self.tool), self.problem.start
        scale = np.concatenate([bodies, np.full(2, _TILT), self.friction])
        matrix = gram * scale[:, None] * scale + np.eye(scale.size)
        found = np.linalg.solve(matrix, (scale * (side.T - gram @ start)).T)
        return np.asarray((start + (scale * found.T)).T)


def _body_scales(robot: RobotModel) -> Array:
    """Return the size of each inertial parameter of a body of the nominal mass and extent, (10 n,)."""
    theta = robot.theta_nominal[: INERTIAL * robot.n].reshape(robot.n, INERTIAL)
    mass = np.maximum(theta[:, 0], _SMALLEST_MASS)
    trace = theta[:, [PARAMETER_NAMES.index(name) for name in ("Ixx", "Iyy", "Izz")]].sum(axis=1)
    length = np.maximum(np.sqrt(0.5 * trace / np.maximum(theta[:, 0], 1e-9)), _SMALLEST_LENGTH)
    powers = np.array([0] + [1] * 3 + [2] * 6)
    return np.asarray((mass[:, None] * length[:, None] ** powers).ravel())


@dataclass(frozen=True)
class TermTest:
    """Whether a friction term explains held-out data.

    Attributes:
        name: The term.
        is_needed: Whether the joint needs the term, (n,).
    """

    name: str
    is_needed: NDArray[np.bool_]


def select_friction(
    robot: RobotModel, motions: Sequence[Motion], law: FrictionLaw
) -> tuple[WholeArmFit, tuple[TermTest, ...]]:
    """Test which terms of a friction law the joints need beyond the simple law, and fit the arm with them.

    Each group of terms is tested by itself, then all selected ones together: a joint keeps them only if its held-out
    blocks are explained better than by the simple law.

    Raises:
        SysidError: The motions are too short.
    """
    names, problem = law.names, WholeArmProblem(robot, motions, law)
    simple = np.zeros((robot.n, len(names)), dtype=bool)
    simple[:, : len(SIMPLE) + law.has_armature] = True

    def squares(terms: NDArray[np.bool_]) -> tuple[WholeArmFit, Array]:
        fitting = _Fitting(problem, terms)
        fit = fitting.run()
        starts = np.flatnonzero(np.diff(problem.block, prepend=-1))
        counts = np.diff(np.append(starts, len(problem.block)))
        return fit, np.add.reduceat(fitting.held_out**2, starts, axis=0) / counts[:, None]

    fit, plain = squares(simple)
    limit = needed_score(_SIGNIFICANCE, len(plain), robot.n * len(law.groups))
    chosen, tests = simple.copy(), []
    for group, columns in law.groups.items():
        terms = simple.copy()
        terms[:, list(columns)] = True
        test = compare_blocks(group, plain, squares(terms)[1], limit)
        tests.append(test)
        chosen[:, list(columns)] |= test.is_needed[:, None]
    if np.array_equal(chosen, simple):
        return fit, tuple(tests)
    keep = compare_blocks("all", plain, squares(chosen)[1], limit).is_needed
    chosen[~keep] = simple[~keep]
    tests = [replace(test, is_needed=test.is_needed & keep) for test in tests]
    return squares(chosen)[0], tuple(tests)


def needed_score(significance: float, blocks: int, tests: int) -> float:
    """Return the score that is as improbable in the best of some tests as one of a normal variable in a single one.

    A score is a mean over its standard error as few blocks show it, so without a term it has Student's distribution.

    Args:
        significance: Score of the normal variable [-].
        blocks: Blocks that the mean is of.
        tests: Number of scores.
    """
    return float(-stdtrit(max(blocks - 1, 1), ndtr(-significance) / max(tests, 1)))


def compare_blocks(name: str, plain: Array, found: Array, needed: float) -> TermTest:
    """Test whether a term explains held-out blocks.

    Args:
        name: The term.
        plain: Mean squares of the residuals of B blocks without it, (B, n) [Nm^2].
        found: The same with it.
        needed: Required mean improvement over its standard error [-].
    """
    gain = plain - found
    mean, spread = gain.mean(axis=0), gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
    score = mean / np.maximum(spread, 1e-300)
    improvement = mean / np.maximum(plain.mean(axis=0), 1e-300)
    return TermTest(name, (score > needed) & (improvement > 0.01))


def _too_few(found: int, needed: int) -> SysidError:
    return SysidError(
        f"{found} usable samples in one piece or more", f"at least {needed} are needed; record for longer"
    )
