"""Friction beyond the simple law: optional terms, each linear in parameters of its own.

The simple law is ``F_c sign(v) + F_v v + beta``. Real joints add

* Stribeck: ``sum_k F_k sign(v) exp(-|v| / v_k)`` on a grid of speeds ``v_k``: more friction at creep speeds;
* asymmetry: ``F_a |v|``, other viscous friction in either direction (other Coulomb friction is offset and F_c already);
* load dependence: ``F_l |tau_load| sign(v)`` with the torque that the nominal arm needs;
* position ripple: ``F_s sin(k q) + F_o cos(k q)`` with k cycles per turn, as a strain-wave gear makes two per turn of
  the motor; where it excites a resonance, the output of ``x'' + 2 d w x' + w^2 x = w^2 u`` and its rate in place of it.

Where the sign of a speed is not certain, ``sign`` is smooth: ``tanh(v / v_0)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ripple:
    """A ripple over the position of a joint.

    Attributes:
        cycles: Cycles per turn of the joint, (n,); 0 where there is none.
        frequency: Frequency of the resonance it excites [Hz]; 0: none.
        damping: Damping ratio of the resonance [-].
    """

    cycles: tuple[float, ...]
    frequency: float = 0.0
    damping: float = 0.1

    def __post_init__(self) -> None:
        if self.frequency < 0.0 or not 0.0 < self.damping < 10.0 or min(self.cycles) < 0.0:
            raise ParameterOutOfRange("ripple", self, "cycles and frequency of 0 or more, damping above 0 and below 10")


@dataclass(frozen=True)
class FrictionLaw:
    """Which terms the friction of each joint has; the simple law by default.

    Attributes:
        stribeck_speeds: Grid of speeds of the Stribeck terms [rad/s].
        has_asymmetry: Whether viscous friction differs between the directions.
        has_load: Whether Coulomb friction grows with the load.
        ripples: Ripples over the joint's own position.
        sign_speed: Speed ``v_0`` at which a sign counts as known [rad/s].
    """

    stribeck_speeds: tuple[float, ...] = ()
    has_asymmetry: bool = False
    has_load: bool = False
    ripples: tuple[Ripple, ...] = ()
    sign_speed: float = 0.01

    def __post_init__(self) -> None:
        if self.sign_speed <= 0.0 or any(speed <= 0.0 for speed in self.stribeck_speeds):
            raise ParameterOutOfRange(
                "speeds of the friction law", (self.sign_speed, *self.stribeck_speeds), "positive [rad/s]"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the K parameters of each joint, the simple law's first."""
        result = ["F_c", "F_v", "beta"]
        result += [f"stribeck_{speed:g}" for speed in self.stribeck_speeds]
        result += ["asymmetry"] * self.has_asymmetry + ["load"] * self.has_load
        parts = (("sin", "cos"), ("sin", "cos", "sin_rate", "cos_rate"))
        for index, ripple in enumerate(self.ripples):
            result += [f"ripple_{index}_{part}" for part in parts[ripple.frequency > 0.0]]
        return tuple(result)

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """Columns of the optional terms by what belongs together: all Stribeck speeds, all parts of a ripple."""
        sizes = {
            "stribeck": len(self.stribeck_speeds),
            "asymmetry": int(self.has_asymmetry),
            "load": int(self.has_load),
        }
        sizes |= {f"ripple_{k}": 4 if ripple.frequency > 0.0 else 2 for k, ripple in enumerate(self.ripples)}
        first, result = 3, {}
        for name, size in sizes.items():
            if size:
                result[name] = tuple(range(first, first + size))
            first += size
        return result

    def columns(self, pieces: Sequence[slice], seconds: Array, q: Array, v: Array, load: Array) -> Array:
        """Evaluate the terms.

        Args:
            pieces: Contiguous samples; a resonance starts at rest in each.
            seconds: Times, (N,) [s].
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            load: Torques that the nominal arm needs, (N, n) [Nm].

        Returns:
            Columns, (N, n, K): the friction torque of joint j is ``columns[:, j] @ parameters[j]``.
        """
        sign = np.tanh(v / self.sign_speed)
        result = [sign, v, np.ones_like(v)]
        result += [sign * np.exp(-np.abs(v) / speed) for speed in self.stribeck_speeds]
        result += [np.abs(v)] * self.has_asymmetry + [sign * np.abs(load)] * self.has_load
        for ripple in self.ripples:
            result += _ripple_columns(ripple, pieces, seconds, q)
        return np.stack(result, axis=2)


def _ripple_columns(ripple: Ripple, pieces: Sequence[slice], seconds: Array, q: Array) -> list[Array]:
    cycles = np.broadcast_to(np.asarray(ripple.cycles, dtype=float), q.shape[1:])
    angle, has_any = cycles * q, cycles > 0.0
    inputs = [np.sin(angle) * has_any, np.cos(angle) * has_any]
    if ripple.frequency == 0.0:
        return inputs
    outputs = [np.zeros_like(q) for _ in range(4)]
    for part in pieces:
        for k in range(2):
            outputs[k][part], outputs[2 + k][part] = _resonate(ripple, seconds[part], inputs[k][part])
    return outputs


def _resonate(ripple: Ripple, seconds: Array, drive: Array) -> tuple[Array, Array]:
    """Return the output of a resonance and its rate, relative to its frequency, (N, n) each."""
    from scipy.signal import cont2discrete, lfilter  # takes a second to load

    omega = 2.0 * np.pi * ripple.frequency
    period = float(np.median(np.diff(seconds)))
    state = np.array([[0.0, 1.0], [-omega * omega, -2.0 * ripple.damping * omega]])
    system = (state, np.array([[0.0], [omega * omega]]), np.array([[1.0, 0.0], [0.0, 1.0 / omega]]), np.zeros((2, 1)))
    a, b, c, d, _ = cont2discrete(system, period, "zoh")
    denominator = np.poly(a)
    results = []
    for row in range(2):
        numerator = np.poly(a - b @ c[row : row + 1]) + (d[row, 0] - 1.0) * denominator
        results.append(np.asarray(lfilter(numerator, denominator, drive, axis=0)))
    return results[0], results[1]
