"""Fits a dynamic model beside a torque loop, and checks each fit for the gate that decides on its use.

The loop itself never fits: the reader of its samples gives them to a :class:`ModelFitter`, and its results to the
controller, which takes them between two cycles. A coefficient of determination judges torques of the past. Two more
checks are made at the postures and motions of the buffer: the inertia over the nominal one, since computed torque with
an inertia that is not positive pushes a joint away from its reference; and the largest possible error of its torques,
for any arm and payload in the parameter boxes, beside that of the nominal model.

Source: SVA section VI; inertia and bounds are our own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.core.online_model.least_squares import (
    ModelObserver,
    Observation,
    OnlineFit,
    OnlineFitSettings,
    OnlineLeastSquares,
)
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]
_KNOWN = 1e-6
"""Scale of parameters whose box is a point, in their units."""


@dataclass(frozen=True)
class FittedModel:
    """A fitted model that a controller may use in place of its nominal one.

    Attributes:
        fit: Parameters, coefficients of determination and size of the buffer.
        nominal: Parameters of the nominal model it was fitted from, payload included, (14 n,).
        inertia: Least and largest ratio of its inertia to the nominal one, in any direction of the joints, at the
            postures of the buffer. NaN if unknown.
        error_bound: Largest error of the mean torque of each joint over a window of the buffer, by the parameter boxes,
            (n,) [Nm].
        nominal_error_bound: The same of the nominal model, (n,) [Nm].
    """

    fit: OnlineFit
    nominal: Array
    inertia: tuple[float, float]
    error_bound: Array
    nominal_error_bound: Array

    @property
    def is_better_for_certain(self) -> bool:
        """Whether the boxes prove that it is closer to the truth than the nominal model in every joint."""
        return bool((self.error_bound < self.nominal_error_bound).all())


class ModelFitter:
    """Collects samples of a torque loop and fits a model, a few times per second.

    Args:
        robot: The arm; its effort meaning says whether friction belongs to the equations.
        model: Nominal model, from which the fit departs, and the parameter boxes.
        settings: Buffer, rate and weight.
        period: Time between cycles [s].
        observation: Where the equations come from.
        acceleration_time: Time constant of the moving average of accelerations [s].
    """

    def __init__(
        self,
        robot: RobotModel,
        model: ControlModel,
        settings: OnlineFitSettings,
        period: float,
        observation: Observation = Observation.MOMENTUM,
        acceleration_time: float = 0.02,
    ):
        every = max(1, round(1.0 / (settings.rate * period)))
        self._settings, self._n = settings, robot.n
        self._observer = ModelObserver(robot, observation, period, every, acceleration_time)
        self._unit = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE)  # with armature, whatever the sensor measures
        self.reset(model)

    @property
    def model(self) -> ControlModel:
        """The nominal model."""
        return self._model

    def reset(self, model: ControlModel) -> None:
        """Discard all samples, and depart from this nominal model from now on."""
        self._model, self._nominal = model, model.total
        # The size of the boxes is the natural size of a departure; parameters known exactly hardly move.
        self._box = model.deviation
        scale = np.maximum(np.max(np.abs(self._box), axis=0), _KNOWN)
        self._fit = OnlineLeastSquares(self._nominal, self._n, self._settings, scale)
        self._rows: deque[Array] = deque(maxlen=None if self._settings.is_growing else self._settings.capacity)
        self._inertia_rows: deque[Array] = deque(maxlen=self._rows.maxlen)
        self._last: tuple[int, int] | None = None
        self._observer.reset()

    def add(self, samples: SampleBlock, is_moving: NDArray[np.bool_]) -> FittedModel | None:
        """Add samples, and return the newest fit where there is one.

        An arm at rest only shows its gravity in one posture, over and over, which any wrong model soon explains:
        samples at rest are left out.

        Args:
            samples: The samples; a jump of their numbers is a gap.
            is_moving: Whether the arm was commanded to move, (N,).
        """
        newest = None
        for k in range(len(samples)):
            number, stamp = int(samples.sequence[k]), int(samples.stamps[k])
            if self._last is not None and number != self._last[0] + 1:
                self._observer.reset()
                if not 0 <= stamp - self._last[1] <= 10**9:  # after a longer gap all samples are discarded
                    self.reset(self._model)
            self._last = number, stamp
            if is_moving[k]:
                newest = self.note(samples.q[k], samples.v[k], samples.tau[k]) or newest
            else:
                self._observer.reset()
        return newest

    def note(self, q: Array, v: Array, effort: Array) -> FittedModel | None:
        """Add the next cycle, and return a fit where one is due.

        Args:
            q: Measured positions, (n,) [rad].
            v: Measured velocities, (n,) [rad/s].
            effort: Mean effort since the cycle before, (n,) [Nm].
        """
        equation = self._observer.note(q, v, effort)
        if equation is None or not self._fit.add(*equation):
            return None
        self._rows.append(equation[0])
        self._inertia_rows.append(self._inertia_columns(np.asarray(q, dtype=float)))
        fit = self._fit.solve()
        departure = fit.theta - self._nominal
        return FittedModel(
            fit, self._nominal, self._compare_inertia(fit.theta), self._bound(departure), self._bound(0.0 * departure)
        )

    def _inertia_columns(self, q: Array) -> Array:
        """Return the matrix from parameters to the inertia matrix at a posture, (n, n, 14 n)."""
        n, zero = self._n, np.zeros((self._n + 1, self._n))
        accelerations = np.vstack([np.eye(n), np.zeros(n)])
        rows = self._unit.evaluate(np.tile(q, (n + 1, 1)), zero, accelerations)
        return np.asarray(rows[:n] - rows[n])

    def _compare_inertia(self, theta: Array) -> tuple[float, float]:
        columns = np.array(self._inertia_rows)
        least, largest = np.inf, -np.inf
        for fitted, nominal in zip(columns @ theta, columns @ self._nominal, strict=True):
            try:
                ratios = scipy.linalg.eigvalsh(0.5 * (fitted + fitted.T), 0.5 * (nominal + nominal.T))
            except (np.linalg.LinAlgError, ValueError):  # the nominal one is not positive, or there is no number
                return np.nan, np.nan
            least, largest = min(least, float(ratios[0])), max(largest, float(ratios[-1]))
        return least, largest

    def _bound(self, departure: Array) -> Array:
        """Return the largest torque error in the buffer of parameters with this departure from the nominal ones."""
        lower, upper = (end - departure for end in self._box)  # of the truth less these parameters
        rows = np.array(self._rows)
        error = np.abs(rows @ (0.5 * (lower + upper))) + np.abs(rows) @ (0.5 * (upper - lower))
        return np.asarray(error.max(axis=0))


def require_fitted(model: FittedModel, n: int) -> None:
    """Check the numbers of a model that is offered to a controller of an arm with n joints.

    Raises:
        ParameterOutOfRange: A length is wrong, or a parameter is not finite.
    """
    theta = np.asarray(model.fit.theta, dtype=float)
    if theta.shape != model.nominal.shape or not np.isfinite(theta).all():
        raise ParameterOutOfRange("parameters of the fitted model", theta, f"{model.nominal.size} finite numbers")
    if np.shape(model.fit.determination) != (n,):
        raise ParameterOutOfRange("coefficients of determination", model.fit.determination, f"{n} numbers")
