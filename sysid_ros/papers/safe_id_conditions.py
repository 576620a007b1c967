"""Condition numbers of the regressors W and Y for random Fourier motions (SAFE-ID appendix D, Table IV)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.executor import tell_share

Array = NDArray[np.float64]

HORIZONS = (1, 5, 10, 20, 50, 100, 200, 500)
"""Samples of a window, h."""
PAPER = (1.0000, 1.0000, 0.9994, 0.9934, 0.9540, 0.6709, 0.3537, 0.2789)
"""The paper's correlations."""
DURATION, STEP = 10.0, 1e-3
_HARMONICS, _REACH = 5, 0.6


def random_series(
    robot: RobotModel, rng: np.random.Generator, period: float, times: Array
) -> tuple[Array, Array, Array]:
    """Return positions, velocities and accelerations of a random Fourier series around home, (N, n) each.

    ``period`` is the first harmonic's [s], ``times`` (N,) are in [s].
    """
    orders = 2.0 * np.pi / period * np.arange(1, _HARMONICS + 1)
    sines, cosines = rng.uniform(-1.0, 1.0, (2, _HARMONICS, robot.n)) / np.sqrt(_HARMONICS)
    s, c = np.sin(np.outer(times, orders)), np.cos(np.outer(times, orders))
    q = robot.home + _REACH * (s @ sines + c @ cosines)
    v = _REACH * ((orders * c) @ sines - (orders * s) @ cosines)
    a = -_REACH * ((orders**2 * s) @ sines + (orders**2 * c) @ cosines)
    return q, v, a


def condition_numbers(robot: RobotModel, motions: int, seed: int, period: float) -> tuple[Array, Array]:
    """Compute condition numbers of the columns of the last body for random motions.

    Windows of h samples follow each other without overlap, integrals are by forward Euler, as in the paper.

    Args:
        robot: The arm.
        motions: Number of motions.
        seed: Of their coefficients.
        period: Of their first harmonic [s]; the paper does not say.

    Returns:
        Of W, (motions,), and of Y, (motions, horizons).

    Source: SAFE-ID appendix D.
    """
    rng, last = np.random.default_rng(seed), [robot.n]
    inverse = TorqueRegressor(robot, EffortMeaning.LINK_SIDE, last)
    momentum = MomentumRegressor(robot, EffortMeaning.LINK_SIDE, last)
    times = np.arange(round(DURATION / STEP) + 1, dtype=np.float64) * STEP
    of_w, of_y = np.zeros(motions), np.zeros((motions, len(HORIZONS)))
    for k in range(motions):
        q, v, a = random_series(robot, rng, period, times)
        of_w[k] = np.linalg.cond(inverse.evaluate(q, v, a)[:-1, :, :INERTIAL].reshape(-1, INERTIAL))
        w_m, w_c = (columns[:, :, :INERTIAL] for columns in momentum.evaluate(q, v))
        for j, h in enumerate(HORIZONS):
            ends = np.arange(0, len(times), h)
            integral = STEP * np.add.reduceat(w_c[: ends[-1]], ends[:-1], axis=0)
            of_y[k, j] = np.linalg.cond((np.diff(w_m[ends], axis=0) - integral).reshape(-1, INERTIAL))
        tell_share((k + 1.0) / motions)
    return of_w, of_y
