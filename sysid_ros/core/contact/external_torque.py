"""External joint torques with guaranteed intervals, window by window.

A window's rows say ``Y theta_e + B delta + V eta = u + e + s``, where s is the impulse of the external torques, zero
without contact. Rows of windows without contact, the reference, have ``s = 0`` and share theta_e and delta. So for
every matrix L

``s = (Y - L Y_r) x + (B - L B_r) delta + V eta - L V_r eta_r - (r - L r_r) - e + L e_r``,

which gives an interval for s by the bounds of everything on the right. L predicts the rows of the window from those of
the reference: constant effects (the arm, its friction, offsets, the payload) cancel as far as the reference has shown
them. With ``L = 0`` only the boxes count. A bad L only makes the interval wide.

Source: EXCITE (1), in the integrated form of SAFE-ID; docs/theory/contact.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns, describe_unknowns
from sysid_ros.core.estimation.windows.model import Window, WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import SampleStream
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_CAUTION = (1.0, 30.0, 1000.0)
"""Factors on the variance of independent errors: their bounds add up like sums, not like roots of sums of squares."""


@dataclass(frozen=True)
class ExternalTorque:
    """Mean external joint torques over a window.

    Attributes:
        start: Start of the window [ns].
        stop: End of the window [ns].
        lower: Lower bounds, (n,) [Nm].
        upper: Upper bounds, (n,) [Nm].
        q: Measured positions during the window, (N, n) [rad].
    """

    start: int
    stop: int
    lower: Array
    upper: Array
    q: Array

    @property
    def value(self) -> Array:
        """Middle of the bounds, (n,) [Nm]."""
        return np.asarray(0.5 * (self.lower + self.upper))

    @property
    def width(self) -> Array:
        """Upper less lower bounds, (n,) [Nm]: a larger external torque than this is detected for certain."""
        return np.asarray(self.upper - self.lower)

    @property
    def is_proven(self) -> NDArray[np.bool_]:
        """Joints that certainly have an external torque: 0 is outside their interval, (n,)."""
        return np.asarray((self.lower > 0.0) | (self.upper < 0.0))


class Reference:
    """Rows without contact that predict a window's, and the boxes of their shared unknowns.

    Args:
        box: Box of the target ``theta_e``, (P,).
        unknowns: Radii of the shared nuisance parameters and errors.
        rows: Rows of windows without contact, compacted ones first; none: boxes only.
    """

    def __init__(self, box: Box, unknowns: Unknowns, rows: Sequence[Rows] = ()):
        self._box, self._delta_radius, self._end_error = box, unknowns.radius, unknowns.end_error
        self.rows = sum(len(part) for part in rows)
        """Number of rows."""
        self._known = self._build(Rows.stack(rows)) if self.rows else None
        self._predictors = [] if self._known is None else _predictors(self._known)

    def bound(self, window: Rows) -> tuple[Array, Array]:
        """Compute bounds (n,) [Nms] of the impulses of the external torques from the rows of a window."""
        new = self._build(window)
        candidates = [_bound(new)]
        if self._known is not None:
            gains = np.concatenate([new.y, new.b], axis=1)
            candidates += [_bound(new, self._known, gains @ predictor) for predictor in self._predictors]
        lower = np.max([center - radius for center, radius in candidates], axis=0)
        upper = np.min([center + radius for center, radius in candidates], axis=0)
        return np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf)

    def _build(self, rows: Rows) -> Problem:
        return Problem.build(rows, self._box.center, self._box.radius, self._delta_radius, self._end_error)


def _predictors(known: Problem) -> list[Array]:
    """Return matrices (P + M, R) from gains of the unknowns to weights of the reference's rows.

    Each is the best linear prediction if radii were standard deviations, times a caution about independent errors.
    """
    gains = np.concatenate([known.y, known.b], axis=1)
    scaled = gains * np.concatenate([known.radius, known.delta_radius]) ** 2
    ends = known.end_matrix.toarray() * known.end_radii
    error = np.maximum(known.error, max(1e-9 * float(known.error.max()), 1e-15))
    shared = scaled @ gains.T + ends @ ends.T
    result = []
    for caution in _CAUTION:
        factor = scipy.linalg.cho_factor(shared + np.diag(caution * error**2), lower=True, check_finite=False)
        result.append(scipy.linalg.cho_solve(factor, scaled, check_finite=False).T)
    return result


def _bound(new: Problem, known: Problem | None = None, weights: Array | None = None) -> tuple[Array, Array]:
    """Bound the impulses for any weights (n, R) of the known rows; centre and radius, (n,) [Nms] each."""
    gains_y, gains_b, center = new.y, new.b, -new.r
    gamma, content = new.rounding_unit, new.content
    radius = new.error + np.abs(new.end_matrix) @ new.end_radii
    if known is not None and weights is not None:
        gains_y, gains_b, center = gains_y - weights @ known.y, gains_b - weights @ known.b, center + weights @ known.r
        magnitude, gamma = np.abs(weights), known.rounding_unit
        content = content + magnitude @ known.content
        radius = radius + magnitude @ known.error + np.abs(weights @ known.end_matrix) @ known.end_radii
    radius = radius + np.abs(gains_y) @ new.radius + np.abs(gains_b) @ new.delta_radius + gamma * content
    return center, radius * (1.0 + gamma)


class ExternalTorqueObserver:
    """Turns samples into external torques with guaranteed intervals, one for each window.

    The intervals hold under the assumptions of the estimator (docs/theory/bounds.md), with ``no contact`` for the
    windows of the reference only. 0 outside an interval proves that one of them is violated: the arm is in contact, or
    the payload has changed.

    Args:
        robot: The arm with its parameter box, sensors and the prior of the payload.
        settings: Windows, error budget and assumptions, those of the estimator that gives the reference.
        model: ``RowStream.prior_model`` of that estimator, which then shares its work on each window.

    Raises:
        ParameterOutOfRange: All bodies are identified at once; external torques need one target, such as the payload.
    """

    def __init__(self, robot: RobotModel, settings: EstimatorSettings | None = None, model: WindowModel | None = None):
        settings = settings or EstimatorSettings()
        self._model = model or WindowModel(robot, settings, describe_unknowns(robot, settings))
        if not self._model.unknowns.target.body:
            allowed = "the payload or one body, whose box data can narrow"
            raise ParameterOutOfRange("body", settings.body, allowed)
        self._stream = SampleStream(robot, settings)
        self.clear()

    @property
    def reference(self) -> Reference:
        """Reference of the comparison."""
        return self._reference

    def clear(self) -> None:
        """Go back to the prior, as after a change of the payload."""
        self._stream.restart()
        self._reference = Reference(self._model.unknowns.prior, self._model.unknowns)
        self._stamp: int | None = None

    def set_reference(self, rows: Sequence[Rows], box: Box, stamp: int | None) -> None:
        """Compare the next windows with rows without contact.

        Args:
            rows: Rows of an estimator with the same robot and settings (``StreamingEstimator.stored_windows``).
            box: Box of the target that these rows prove, (P,).
            stamp: From when on the torque offset may have drifted in these rows [ns] (``RowStream.reference``).
        """
        self._reference, self._stamp = Reference(box, self._model.unknowns, rows), stamp

    def add(self, block: SampleBlock) -> list[ExternalTorque]:
        """Add samples; return the external torques of the windows they complete.

        Raises:
            InvalidSamples: The block has another number of joints than the robot.
        """
        return [self.observe(window) for window in self._stream.add(block)[0]]

    def observe(self, window: Window) -> ExternalTorque:
        """Bound the external torques of a window."""
        self._stamp = window.start_stamp if self._stamp is None else self._stamp
        rows = build_rows(self._model, window, self._stamp)
        lower, upper = self._reference.bound(rows)
        seconds, jitter = float(rows.duration[0]), self._model.sensors.stamp_jitter
        # The true duration differs by the errors of two stamps.
        times = np.array([seconds - 2.0 * jitter, seconds + 2.0 * jitter])
        return ExternalTorque(
            start=int(rows.start[0]),
            stop=int(rows.stop[0]),
            lower=np.min(lower[:, None] / times, axis=1),
            upper=np.max(upper[:, None] / times, axis=1),
            q=window.block.q[window.start : window.stop + 1],
        )
