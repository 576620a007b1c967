"""The Fourier trajectories that start and end at rest, as a linear space with free coordinates."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.planning.fourier import FourierTrajectory, rest_projection

Array = NDArray[np.float64]
State = tuple[Array, Array, Array]


class FourierSpace:
    """Coordinates of the Fourier trajectories of n joints from one start position, one period long.

    The coordinates ``x`` are, joint by joint, the coefficients of the sines and then of the cosines in the null space
    of the conditions of rest; any x is a trajectory that starts and ends at rest, and x = 0 does not move.

    Args:
        q_start: Start and end position, (n,) [rad].
        harmonics: Number of harmonics L.
        duration: Duration [s].
        samples: Number of sample times, evenly spread over the duration.

    Raises:
        InvalidTrajectory: Fewer than two harmonics.
    """

    def __init__(self, q_start: ArrayLike, harmonics: int, duration: float, samples: int):
        self.q_start = np.array(q_start, dtype=float)
        self.duration = float(duration)
        self.n = self.q_start.size
        self._sine_basis, self._cosine_basis = rest_projection(harmonics)
        self.per_joint = 2 * (harmonics - 1)
        """Coordinates of one joint."""
        self.times = (np.arange(samples) + 0.5) * (self.duration / samples)
        omega = 2.0 * np.pi / self.duration * np.arange(1, harmonics + 1)
        sine, cosine = np.sin(np.outer(omega, self.times)), np.cos(np.outer(omega, self.times))
        omega = omega[:, None]
        self.position_basis = self._project(sine / omega, (1.0 - cosine) / omega)
        """Position of a joint relative to its start per coordinate, (per_joint, N) [rad]."""
        self.velocity_basis = self._project(cosine, sine)
        """Velocity of a joint per coordinate, (per_joint, N) [rad/s]."""
        self.acceleration_basis = self._project(-sine * omega, cosine * omega)
        """Acceleration of a joint per coordinate, (per_joint, N) [rad/s^2]."""

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.n * self.per_joint

    def states(self, x: ArrayLike) -> State:
        """Positions, velocities and accelerations at the sample times, each (N, n), of coordinates (size,)."""
        coordinates = np.asarray(x, dtype=float).reshape(self.n, self.per_joint)
        position = (coordinates @ self.position_basis).T + self.q_start
        return position, (coordinates @ self.velocity_basis).T, (coordinates @ self.acceleration_basis).T

    def pull_back(self, dq: Array, dv: Array, da: Array) -> Array:
        """Gradient with respect to the coordinates, (size,), from those with respect to the states, each (N, n)."""
        gradient = self.position_basis @ dq + self.velocity_basis @ dv + self.acceleration_basis @ da
        return gradient.T.ravel()

    def chain(self, jacobian: Array) -> Array:
        """Jacobian with respect to the coordinates.

        Args:
            jacobian: Of m functions of the state at each sample with respect to it, (N, m, 3 n): q, then v, then a; or
                (N, m, n) with respect to q alone.

        Returns:
            (N, m, size).
        """
        samples, rows, columns = jacobian.shape
        bases = (self.position_basis, self.velocity_basis, self.acceleration_basis)[: columns // self.n]
        blocks = jacobian.reshape(samples, rows, len(bases), self.n)
        result = np.einsum("smbj,bks->smjk", blocks, np.stack(bases), optimize=True)
        return result.reshape(samples, rows, self.size)

    def trajectory(self, x: ArrayLike) -> FourierTrajectory:
        """The trajectory with coordinates (size,)."""
        sines, cosines = np.split(np.asarray(x, dtype=float).reshape(self.n, self.per_joint), 2, axis=1)
        sine, cosine = sines @ self._sine_basis.T, cosines @ self._cosine_basis.T
        return FourierTrajectory(self.q_start, sine, cosine, 1.0 / self.duration, self.duration)

    def _project(self, of_sines: Array, of_cosines: Array) -> Array:
        return np.concatenate([self._sine_basis.T @ of_sines, self._cosine_basis.T @ of_cosines])
