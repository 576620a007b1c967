"""Common interface of trajectories: evaluation, extrema over all time, coefficients for the wire and a hash."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange

Array = NDArray[np.float64]

State = tuple[Array, Array, Array]


class Trajectory(ABC):
    """A motion of n joints over ``[0, duration]`` that ends at rest. Immutable.

    Outside this time the arm rests: before 0 at the start position, after ``duration`` at the end position, both with
    zero velocity and acceleration.

    Attributes:
        kind: Name of the type on the wire.
        n: Number of joints.
        duration: Duration [s].
    """

    kind: str = ""
    n: int
    duration: float

    @abstractmethod
    def evaluate(self, t: float) -> State:
        """Evaluate the state at a time [s], fast enough for a 1 kHz loop (a few microseconds).

        Returns:
            Position [rad], velocity [rad/s] and acceleration [rad/s^2], each (n,).
        """

    @abstractmethod
    def sample(self, times: ArrayLike) -> State:
        """Evaluate the states at many times (N,) [s].

        Returns:
            Positions [rad], velocities [rad/s] and accelerations [rad/s^2], each (N, n).
        """

    @abstractmethod
    def position_extrema(self) -> tuple[Array, Array]:
        """Bound the positions over all time: lower and upper bounds that are never exceeded, each (n,) [rad]."""

    @abstractmethod
    def velocity_extrema(self) -> tuple[Array, Array]:
        """Bound the velocities over all time: lower and upper bounds that are never exceeded, each (n,) [rad/s]."""

    @abstractmethod
    def acceleration_extrema(self) -> tuple[Array, Array]:
        """Bound the accelerations over all time: lower and upper bounds never exceeded, each (n,) [rad/s^2]."""

    @property
    @abstractmethod
    def coefficients(self) -> dict[str, Array]:
        """The coefficients of the trajectory, by name, in a fixed order."""

    @property
    def start(self) -> Array:
        """Start position, (n,) [rad]."""
        return self.evaluate(0.0)[0]

    @property
    def end(self) -> Array:
        """End position, (n,) [rad]."""
        return self.evaluate(self.duration)[0]

    def hash(self) -> str:
        """Hash kind, duration and coefficients with sha256, the same on every machine, as 64 hex digits."""
        return fingerprint(self.kind, np.array([self.duration]), *self.coefficients.values())


class BasisTrajectory(Trajectory):
    """A trajectory that is linear in functions of time: ``[q | v | a](t) = basis(t) @ matrix``.

    Args:
        matrix: Coefficients, (K, 3 n).
        q_start: Start position, (n,) [rad].
        q_end: End position, (n,) [rad].
        duration: Duration [s].
    """

    def __init__(self, matrix: Array, q_start: Array, q_end: Array, duration: float):
        self.n = q_start.size
        self.duration = duration
        self._matrix = np.ascontiguousarray(matrix)
        self._q_start = q_start
        self._q_end = q_end

    @abstractmethod
    def _basis(self, t: float) -> Array:
        """Evaluate the basis functions at one time inside, (K,)."""

    @abstractmethod
    def _basis_at(self, times: Array) -> Array:
        """Evaluate the basis functions at many times inside, (N, K)."""

    @abstractmethod
    def _extrema(self, derivative: int) -> tuple[Array, Array]:
        """Bound a derivative of the positions (0, 1 or 2) over all time, each (n,)."""

    def position_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.position_extrema`."""
        return self._extrema(0)

    def velocity_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.velocity_extrema`."""
        return self._extrema(1)

    def acceleration_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.acceleration_extrema`."""
        return self._extrema(2)

    def evaluate(self, t: float) -> State:
        """See :meth:`Trajectory.evaluate`."""
        n = self.n
        if 0.0 <= t < self.duration:
            state = self._basis(t) @ self._matrix
            return state[:n], state[n : 2 * n], state[2 * n :]
        resting = self._q_start if t < 0.0 else self._q_end
        return resting.copy(), np.zeros(n), np.zeros(n)

    def sample(self, times: ArrayLike) -> State:
        """See :meth:`Trajectory.sample`."""
        n, t = self.n, np.asarray(times, dtype=float)
        states = self._basis_at(np.clip(t, 0.0, self.duration)) @ self._matrix
        before, after = t < 0.0, t >= self.duration
        states[before | after, n:] = 0.0
        states[before, :n] = self._q_start
        states[after, :n] = self._q_end
        return states[:, :n], states[:, n : 2 * n], states[:, 2 * n :]


def fingerprint(kind: str, *arrays: ArrayLike) -> str:
    """Hash a name and the shapes and little-endian float64 bytes of arrays with sha256, as 64 hex digits."""
    digest = hashlib.sha256(kind.encode())
    for array in arrays:
        values = np.asarray(array, dtype="<f8") + 0.0  # -0.0 and 0.0 are the same number
        digest.update(np.array(values.shape, dtype="<i8").tobytes())
        digest.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
    return digest.hexdigest()


def joint_vector(name: str, values: ArrayLike, n: int | None = None) -> Array:
    """Return a read-only copy of one number per joint, (n,); without n as many as given.

    Raises:
        ParameterOutOfRange: The length is wrong or an entry is not finite.
    """
    vector = np.array(values, dtype=float)
    if vector.ndim != 1 or vector.size == 0 or (n is not None and vector.size != n):
        wanted = "one number per joint" if n is None else f"{n} numbers, one per joint"
        raise ParameterOutOfRange(f"the shape of {name}", vector.shape, wanted)
    bad = np.flatnonzero(~np.isfinite(vector))
    if bad.size:
        raise ParameterOutOfRange(f"{name} of joint {bad[0] + 1}", vector[bad[0]], "a finite number")
    vector.setflags(write=False)
    return vector


def positive_number(name: str, value: float) -> float:
    """Return the value as a float.

    Raises:
        ParameterOutOfRange: It is not finite and positive.
    """
    number = float(value)
    if not (np.isfinite(number) and number > 0.0):
        raise ParameterOutOfRange(name, number, "a finite number above 0")
    return number
