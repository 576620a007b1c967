"""All bodies, friction, direction of gravity and torque lag of an arm, by least squares around its nominal model.

The prediction of joint j at time t is ``W(q, v, a; g) theta + friction`` at ``t - lag_j``: the torque comes later than
the position. It is linear in the parameters and the friction terms, and nearly so in the rest, so that a few
Gauss-Newton steps solve it. Deviations from the nominal model are weighted like measurements (ridge); how much, and
which friction terms a joint needs, is decided on blocks of data that took no part in the fit. No bounds come out: those
are the work of the set-membership estimator.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.papers.baselines.friction import FrictionLaw

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_STEPS = 5
_NOISE_FLOOR = 1e-3
"""Smallest standard deviation of a torque [Nm]."""
_SMALLEST_MASS, _SMALLEST_LENGTH = 1.0, 0.1
"""Floors of the scale of a body [kg, m]: a light body may carry an unknown tool."""


@dataclass(frozen=True)
class WholeArmSettings(Settings, library_only=True):
    """Settings of the fit of a whole arm."""

    prior_shares: tuple[float, ...] = setting((0.01, 0.03, 0.1, 0.3, 1.0, 3.0), "-", lower=1e-4, upper=1e3)
    """Standard deviations of the inertial parameters around the nominal ones, relative to each body's scale; the
    smallest is taken that explains data which were not fitted as well as the best, to one standard error."""
    tilt: float = setting(0.05, "rad", lower=0.0, upper=0.5)
    """Standard deviation of the direction of gravity; 0: as modelled."""
    torque_lag: float = setting(0.01, "s", lower=0.0, upper=0.2)
    """Torque lag the fit starts from."""
    lag_deviation: float = setting(0.02, "s", lower=0.0, upper=0.2)
    """Standard deviation of each joint's torque lag; 0: as given."""
    friction_deviation: float = setting(10.0, "Nm", lower=0.0, upper=1e4)
    """Standard deviation of friction parameters, in Nm for a column of size 1."""
    smoothing: float = setting(0.05, "s", lower=0.005, upper=1.0)
    """Positions are fitted by local polynomials over so much time on either side."""
    block: float = setting(1.0, "s", lower=0.05, upper=1000.0)
    """Length of the blocks whose residuals are compared."""
    folds: int = setting(5, "-", lower=2, upper=50)
    """Number of parts that are left out in turns; each is a run of blocks."""
    max_samples: int = setting(20000, "-", lower=100, upper=1000000)
    """With more samples every second, third, ... one is used."""
    significance: float = setting(2.0, "-", lower=0.0, upper=10.0)
    """A friction term must improve the blocks that were left out by so many standard errors of their mean, or as many
    more as are as improbable where few blocks tell that error and many terms are tested."""


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
        notices: What was cut and left out, a sentence each.
    """

    pieces: tuple[slice, ...]
    seconds: Array
    q: Array
    v: Array
    a: Array
    tau: Array
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, block: SampleBlock, robot: RobotModel, settings: WholeArmSettings) -> Motion:
        """Cut samples where some are lost, and smooth the positions of each piece.

        A piece ends at a step longer than 1.5 median steps, and where positions jump: by more than three times the
        largest planned acceleration and the encoder's steps allow.

        Raises:
            SysidError: No piece is long enough to be smoothed.
        """
        seconds, period = block.seconds, float(np.median(np.diff(block.seconds)))
        reach = max(int(round(settings.smoothing / period)), 3)
        kept: list[tuple[Array, ...]] = []
        pieces: list[slice] = []
        notices: list[str] = []
        cuts = _find_cuts(seconds, block.q, 3.0 * robot.limits.a_max, robot.sensors.position_resolution)
        if len(cuts):
            first = seconds[cuts[0]]
            notices.append(f"cut at {len(cuts)} places where samples are missing, the first at {first:.4g} s")
        for start, stop in itertools.pairwise([0, *cuts, len(seconds)]):
            if stop - start < 4 * reach:
                continue
            part = slice(start, stop)
            smooth = _smooth(seconds[part], block.q[part], reach)
            inner = slice(start + reach, stop - reach)
            kept.append((seconds[inner], *smooth, block.tau[inner]))
        stride = -(-sum(len(part[0]) for part in kept) // settings.max_samples)
        if not kept:
            raise _too_few(len(seconds), 4 * reach)
        count = 0
        for k, part_values in enumerate(kept):
            kept[k] = tuple(values[::stride] for values in part_values)
            pieces.append(slice(count, count + len(kept[k][0])))
            count += len(kept[k][0])
        times, q, v, a, tau = (np.concatenate(values) for values in zip(*kept, strict=True))
        return cls(tuple(pieces), times, q, v, a, tau, tuple(notices))

    def delayed(self, values: Array, lag: Array) -> Array:
        """Return the values (N, n, ...) of each joint, a lag (n,) [s] earlier, linearly interpolated.

        The first value of a piece stands for what came before it.
        """
        result = np.empty_like(values)
        for part in self.pieces:
            times = self.seconds[part]
            for joint, late in enumerate(lag):
                k = np.clip(np.searchsorted(times, times - late, side="right") - 1, 0, len(times) - 2)
                share = np.clip((times - late - times[k]) / (times[k + 1] - times[k]), 0.0, 1.0)
                share = share.reshape(-1, *([1] * (values.ndim - 2)))
                piece = values[part, joint]
                result[part, joint] = (1.0 - share) * piece[k] + share * piece[k + 1]
        return result


def _find_cuts(seconds: Array, q: Array, acceleration: Array, resolution: Array) -> list[int]:
    """Return the samples that a new piece begins with."""
    steps = np.diff(seconds)
    is_cut = steps > 1.5 * np.median(steps)
    v = np.diff(q, axis=0) / steps[:, None]
    # Each reading is off by up to half a step of the encoder, which at 1 kHz alone is more than any acceleration.
    allowed = (0.5 * (steps[1:] + steps[:-1]))[:, None] * acceleration
    allowed = allowed + resolution * (1.0 / steps[1:] + 1.0 / steps[:-1])[:, None]
    # A jump shows in the second difference before and after it.
    jumps = np.any(np.abs(np.diff(v, axis=0)) > allowed, axis=1)
    is_cut[1:] |= jumps & np.roll(jumps, 1)
    return [int(k) + 1 for k in np.flatnonzero(is_cut)]


def _smooth(seconds: Array, q: Array, reach: int) -> tuple[Array, Array, Array]:
    """Return position, velocity and acceleration by local polynomials of degree four, without the ends."""
    windows = np.lib.stride_tricks.sliding_window_view(seconds, 2 * reach + 1)
    offsets = windows - seconds[reach : len(seconds) - reach, None]
    scale = float(offsets[:, -1].mean())
    powers = np.stack([(offsets / scale) ** k for k in range(5)], axis=2)
    weights = np.linalg.solve(powers.transpose(0, 2, 1) @ powers, powers.transpose(0, 2, 1))
    values = np.lib.stride_tricks.sliding_window_view(q, 2 * reach + 1, axis=0)
    fitted = np.einsum("kpw,kjw->pkj", weights[:, :3], values)
    return fitted[0], fitted[1] / scale, 2.0 * fitted[2] / scale**2


@dataclass(frozen=True)
class WholeArmFit:
    """Parameters of an arm that explain measured torques.

    Attributes:
        theta: Inertial parameters, (10 n,); a tool is part of the last body.
        friction: Parameters of the friction law of each joint, (n, K); zero for terms that a joint does not need.
        law: The friction law.
        terms: Which terms each joint has, (n, K).
        gravity: Gravity in the base frame, (3,) [m/s^2].
        torque_lag: (n,) [s].
        noise: Root mean square of the residuals of the fit, (n,) [Nm].
        prior_share: The chosen one of ``prior_shares``.
    """

    theta: Array
    friction: Array
    law: FrictionLaw
    terms: NDArray[np.bool_]
    gravity: Array
    torque_lag: Array
    noise: Array
    prior_share: float

    def predict(self, robot: RobotModel, motion: Motion) -> Array:
        """Compute the torques that the sensors should show, (N, n) [Nm]."""
        problem = WholeArmProblem(robot, motion, self.law)
        return problem.predict(problem.pack(self))


@dataclass
class WholeArmProblem:
    """The regressors of a motion, affine in gravity, with the columns of the friction law.

    Attributes:
        robot: The arm.
        motion: Smoothed samples.
        law: The friction law.
    """

    robot: RobotModel
    motion: Motion
    law: FrictionLaw
    by_gravity: list[Array] = field(init=False, repr=False)
    columns: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        motion, n = self.motion, self.robot.n
        self.by_gravity = []
        for gravity in (np.zeros(3), *np.eye(3)):
            model = pin.Model(self.robot.pin_model)
            model.gravity = pin.Motion(gravity, np.zeros(3))
            regressor = TorqueRegressor(model).evaluate(motion.q, motion.v, motion.a)[:, :, : INERTIAL * n]
            self.by_gravity.append(regressor - self.by_gravity[0] if self.by_gravity else regressor)
        load = self.regressor(self.strength * self.axes[2]) @ self.robot.theta_nominal[: INERTIAL * n]
        self.columns = self.law.columns(motion.pieces, motion.seconds, motion.q, motion.v, load)

    @property
    def strength(self) -> float:
        """Strength of gravity [m/s^2]."""
        return float(np.linalg.norm(self.robot.pin_model.gravity.linear))

    @property
    def axes(self) -> Array:
        """Two axes across nominal gravity in the model's world and one along it, as rows, (3, 3)."""
        along = np.array(self.robot.pin_model.gravity.linear) / self.strength
        first = np.cross(along, np.eye(3)[int(np.argmin(np.abs(along)))])
        first /= np.linalg.norm(first)
        return np.stack([first, np.cross(along, first), along])

    def regressor(self, gravity: Array) -> Array:
        """Return the inertial columns for a gravity (3,) in the model's world, (N, n, 10 n)."""
        return np.asarray(
            self.by_gravity[0] + sum(g * part for g, part in zip(gravity, self.by_gravity[1:], strict=True))
        )

    def gravity(self, tilt: Array) -> Array:
        """Return gravity (3,) for its two tilts (2,) [rad]."""
        direction = np.append(tilt, np.sqrt(max(1.0 - float(tilt @ tilt), 0.0)))
        return np.asarray(self.strength * direction @ self.axes)

    # The unknowns are [theta (10 n), tilt (2), friction (n K), lag (n)].

    @property
    def start(self) -> Array:
        """The nominal model without friction, tilt and lag."""
        n, k = self.columns.shape[1:]
        return np.concatenate([self.robot.theta_nominal[: INERTIAL * n], np.zeros(2 + n * k + n)])

    def unpack(self, x: Array) -> tuple[Array, Array, Array, Array]:
        """Split the unknowns into theta, tilt, friction (n, K) and lag (n,)."""
        n, k = self.columns.shape[1:]
        theta, tilt, friction, lag = np.split(x, np.cumsum([INERTIAL * n, 2, n * k]))
        return theta, tilt, friction.reshape(n, k), lag

    def pack(self, fit: WholeArmFit) -> Array:
        """Return the unknowns of a fit."""
        world = self.robot.pin_model.frames[self.robot.pin_model.getFrameId(self.robot.base_frame)].placement.rotation
        tilt = self.axes[:2] @ (world @ fit.gravity) / self.strength
        return np.concatenate([fit.theta, tilt, fit.friction.ravel(), fit.torque_lag])

    def predict(self, x: Array) -> Array:
        """Compute the torques that the sensors should show, (N, n) [Nm]."""
        _, _, _, lag = self.unpack(x)
        return self.motion.delayed(self._undelayed(x), lag)

    def _undelayed(self, x: Array) -> Array:
        theta, tilt, friction, _ = self.unpack(x)
        return np.asarray(self.regressor(self.gravity(tilt)) @ theta + np.einsum("tjk,jk->tj", self.columns, friction))

    def linearise(self, x: Array) -> Array:
        """Compute the derivatives of the prediction by the unknowns, (N, n, P)."""
        theta, tilt, _, lag = self.unpack(x)
        n, k = self.columns.shape[1:]
        gravity, joints = self.gravity(tilt), np.arange(n)
        jacobian = np.zeros((*self.columns.shape[:2], x.size))
        jacobian[:, :, : theta.size] = self.regressor(gravity)
        down = -tilt / np.sqrt(max(1.0 - float(tilt @ tilt), 1e-12))
        for axis in range(2):
            change = self.strength * (self.axes[axis] + down[axis] * self.axes[2])
            jacobian[:, :, theta.size + axis] = sum(
                g * (part @ theta) for g, part in zip(change, self.by_gravity[1:], strict=True)
            )
        first = theta.size + 2
        blocks = jacobian[:, :, first : first + n * k].reshape(*self.columns.shape[:2], n, k)
        blocks[:, joints, joints] = self.columns
        rates = np.zeros_like(self.motion.q)
        undelayed = self._undelayed(x)
        for part in self.motion.pieces:
            rates[part] = np.gradient(undelayed[part], self.motion.seconds[part], axis=0)
        jacobian[:, joints, first + n * k + joints] = -rates
        return self.motion.delayed(jacobian, lag)


def fit_whole_arm(
    robot: RobotModel,
    motion: Motion,
    settings: WholeArmSettings | None = None,
) -> WholeArmFit:
    """Fit all bodies, friction, tilt and lag to measured torques.

    Args:
        robot: The arm and its nominal parameters.
        motion: Smoothed samples.
        settings: Weights of what is known before.
    """
    return _Fitting(robot, motion, settings or WholeArmSettings(), FrictionLaw(), None).run()


class _Fitting:
    """Gauss-Newton steps with weights chosen by blocks that are left out."""

    def __init__(
        self,
        robot: RobotModel,
        motion: Motion,
        settings: WholeArmSettings,
        law: FrictionLaw,
        terms: NDArray[np.bool_] | None,
    ):
        self.problem = WholeArmProblem(robot, motion, law)
        self.settings = settings
        count = (robot.n, len(law.names))
        self.terms = np.ones(count, dtype=bool) if terms is None else terms
        self.scale = _body_scales(robot)
        self.noise = np.maximum(np.std(motion.tau, axis=0), _NOISE_FLOOR)
        self.start = self.problem.start
        self.start[-robot.n :] = settings.torque_lag
        self.folds = _deal_blocks(motion, settings)
        self.share = settings.prior_shares[0]
        self.held_out = np.zeros_like(motion.tau)
        """Residuals of the samples that were left out, (N, n) [Nm]."""

    def run(self) -> WholeArmFit:
        """Solve, and compute the residuals of the blocks that are left out."""
        x = self.start
        for _ in range(_STEPS):
            x = self._step(x)
        theta, tilt, friction, lag = self.problem.unpack(x)
        model = self.problem.robot.pin_model
        world = model.frames[model.getFrameId(self.problem.robot.base_frame)].placement.rotation
        return WholeArmFit(
            theta=theta,
            friction=friction,
            law=self.problem.law,
            terms=self.terms,
            gravity=world.T @ self.problem.gravity(tilt),
            torque_lag=lag,
            noise=np.sqrt(np.mean((self.problem.motion.tau - self.problem.predict(x)) ** 2, axis=0)),
            prior_share=self.share,
        )

    def _step(self, x: Array) -> Array:
        jacobian = self.problem.linearise(x)
        residual = self.problem.motion.tau - self.problem.predict(x)
        target = residual + jacobian @ x  # of the unknowns themselves
        grams, sides = self._sums(jacobian, target)
        candidates = []
        for share in sorted(self.settings.prior_shares):
            information = self._information(share)
            held_out = np.empty_like(target)
            for fold, index in enumerate(self.folds):
                found = _solve(grams.sum(0) - grams[fold], sides.sum(0) - sides[fold], information, self.start)
                held_out[index] = target[index] - jacobian[index] @ found
            squares = np.sum((held_out / self.noise) ** 2, axis=1)
            costs = np.array([squares[index].mean() for index in self.folds])
            candidates.append((share, costs, held_out))
        best = min(candidates, key=lambda candidate: float(candidate[1].mean()))[1]
        limit = best.mean() + best.std(ddof=1) / np.sqrt(len(best))
        # The strongest prior that the data do not tell from the best one: other motions ask for more than these showed.
        self.share, _, self.held_out = next(entry for entry in candidates if entry[1].mean() <= limit)
        result = _solve(grams.sum(0), sides.sum(0), self._information(self.share), self.start)
        self.noise = np.maximum(np.sqrt(np.mean((target - jacobian @ result) ** 2, axis=0)), _NOISE_FLOOR)
        n = self.problem.robot.n
        result[-n:] = np.clip(result[-n:], 0.0, 0.2)
        return result

    def _sums(self, jacobian: Array, target: Array) -> tuple[Array, Array]:
        """Return the normal equations of each fold, (folds, P, P) and (folds, P)."""
        grams, sides = [], []
        for index in self.folds:
            rows = (jacobian[index] / self.noise[:, None]).reshape(-1, jacobian.shape[2])
            grams.append(rows.T @ rows)
            sides.append(rows.T @ (target[index] / self.noise).ravel())
        return np.array(grams), np.array(sides)

    def _information(self, share: float) -> Array:
        """Return the weights (P,) of the unknowns' start: inverse variances, infinite for what is not fitted."""
        settings, n = self.settings, self.problem.robot.n
        friction = np.where(self.terms, settings.friction_deviation, 0.0).ravel()
        deviations = np.concatenate(
            [share * self.scale, np.full(2, settings.tilt), friction, np.full(n, settings.lag_deviation)]
        )
        return np.asarray(1.0 / np.maximum(deviations, 1e-9) ** 2)


def _solve(gram: Array, side: Array, information: Array, start: Array) -> Array:
    scale = 1.0 / np.sqrt(information)
    matrix = gram * scale[:, None] * scale + np.eye(scale.size)
    return np.asarray(start + scale * np.linalg.solve(matrix, scale * (side - gram @ start)))


def _body_scales(robot: RobotModel) -> Array:
    """Return the size of each inertial parameter of a body of the nominal mass and extent, (10 n,)."""
    theta = robot.theta_nominal[: INERTIAL * robot.n].reshape(robot.n, INERTIAL)
    mass = np.maximum(theta[:, 0], _SMALLEST_MASS)
    trace = theta[:, [PARAMETER_NAMES.index(name) for name in ("Ixx", "Iyy", "Izz")]].sum(axis=1)
    length = np.maximum(np.sqrt(0.5 * trace / np.maximum(theta[:, 0], 1e-9)), _SMALLEST_LENGTH)
    powers = np.array([0] + [1] * 3 + [2] * 6)
    return np.asarray((mass[:, None] * length[:, None] ** powers).ravel())


def _deal_blocks(motion: Motion, settings: WholeArmSettings) -> list[Index]:
    """Return the samples of each fold: blocks that follow each other, since a fit must hold for other motions, too."""
    block = np.zeros(len(motion.seconds), dtype=int)
    count = 0
    for part in motion.pieces:
        numbers = ((motion.seconds[part] - motion.seconds[part][0]) / settings.block).astype(int)
        block[part] = count + numbers
        count += int(numbers[-1]) + 1
    if count < settings.folds:
        period = float(np.median(np.diff(motion.seconds)))
        raise _too_few(len(block), int(settings.folds * settings.block / period) + 1)
    return [np.flatnonzero(block * settings.folds // count == fold) for fold in range(settings.folds)]


@dataclass(frozen=True)
class TermTest:
    """Whether a friction term explains data that took no part in the fit.

    Attributes:
        name: The term.
        improvement: Share of the mean squared residual of blocks left out that the term removes, (n,).
        significance: Mean improvement of a block over its standard error, (n,).
        is_needed: Whether the joint needs the term, (n,).
    """

    name: str
    improvement: Array
    significance: Array
    is_needed: NDArray[np.bool_]


def select_friction(
    robot: RobotModel, motion: Motion, law: FrictionLaw, settings: WholeArmSettings | None = None
) -> tuple[WholeArmFit, tuple[TermTest, ...]]:
    """Test which terms of a friction law the joints need beyond the simple law, and fit the arm with those.

    Each group of terms is tested by itself, and then all that were found together: a joint keeps them only if its
    blocks left out are explained better than by the simple law.

    Args:
        robot: The arm.
        motion: Smoothed samples.
        law: The law with all candidates.
        settings: Weights and blocks.
    """
    settings = settings or WholeArmSettings()
    names = law.names
    simple = np.zeros((robot.n, len(names)), dtype=bool)
    simple[:, :3] = True

    def squares(terms: NDArray[np.bool_]) -> tuple[WholeArmFit, Array]:
        fitting = _Fitting(robot, motion, settings, law, terms)
        fit = fitting.run()
        blocks = _block_means(motion, fitting.held_out**2, settings)
        return fit, blocks

    fit, plain = squares(simple)
    limit = needed_score(settings.significance, len(plain), robot.n * len(law.groups))
    chosen, tests = simple.copy(), []
    for group, columns in law.groups.items():
        terms = simple.copy()
        terms[:, list(columns)] = True
        _, found = squares(terms)
        test = compare_blocks(group, plain, found, limit)
        tests.append(test)
        for column in columns:
            chosen[test.is_needed, column] = True
    if np.array_equal(chosen, simple):
        return fit, tuple(tests)
    _, found = squares(chosen)
    keep = compare_blocks("all", plain, found, limit).is_needed
    chosen[~keep] = simple[~keep]
    tests = [replace(test, is_needed=test.is_needed & keep) for test in tests]
    return squares(chosen)[0], tuple(tests)


def _block_means(motion: Motion, values: Array, settings: WholeArmSettings) -> Array:
    """Return the means of values (N, n) over blocks in time, (B, n)."""
    means = []
    for part in motion.pieces:
        numbers = ((motion.seconds[part] - motion.seconds[part][0]) / settings.block).astype(int)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        counts = np.diff(np.append(starts, len(numbers)))
        means.append(np.add.reduceat(values[part], starts, axis=0) / counts[:, None])
    return np.concatenate(means)


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
    """Say whether a term explains blocks that were left out.

    Args:
        name: The term.
        plain: Mean squares of the residuals of B blocks without it, (B, n) [Nm^2].
        found: The same with it.
        needed: Mean improvement over its standard error that it takes [-].
    """
    gain = plain - found
    mean, spread = gain.mean(axis=0), gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
    score = mean / np.maximum(spread, 1e-300)
    improvement = mean / np.maximum(plain.mean(axis=0), 1e-300)
    return TermTest(name, improvement, score, (score > needed) & (improvement > 0.01))


def _too_few(found: int, needed: int) -> SysidError:
    return SysidError(
        f"{found} usable samples in one piece or more", f"at least {needed} are needed; record for longer"
    )
