"""Friction beyond the simple law: optional terms, each linear in parameters of its own.

The simple law is ``F_c sign(v) + F_v v + beta``; a part of ``F_c`` has the sign of Dahl's model, which turns round only
some way after a reversal. Real joints add

* Stribeck: ``sum_k F_k sign(v) exp(-|v| / v_k)`` on a grid of speeds ``v_k``: more friction at creep speeds;
* asymmetry: ``F_a |v|``, other viscous friction in either direction (other Coulomb friction is offset and F_c already);
* load dependence: ``F_l |tau_load| sign(v)`` with the torque that the nominal arm needs;
* position ripple: ``F_s sin(k q) + F_o cos(k q)`` with k cycles per turn, as a strain-wave gear makes two per turn of
  the motor;
* armature: ``I_a a``, where torques are motor torques.

Where the sign of a speed is not certain, ``sign`` is smooth: ``tanh(v / SIGN_SPEED)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange

Array = NDArray[np.float64]

SIGN_SPEED = 0.01
"""Speed at which a sign counts as known [rad/s]."""
PRESLIDING = 0.002
"""Way in which Dahl's part turns round but for 37 % [rad]: of 1 to 5 mrad, that with which halves of a recording of an
LBR Med7 predict each other best (bench/bench_real_arm.py)."""
SIMPLE = ("F_c", "F_v", "beta", "dahl")
"""Parameters of the simple law."""


def follow_directions(q: Array, v: Array) -> Array:
    """Follow the direction of friction before sliding, from -1 to 1, along a motion.

    Args:
        q: Positions, (N, n) [rad].
        v: First velocity, (n,) [rad/s]: friction is assumed to oppose it already.

    Returns:
        Directions, (N, n) [-].

    Source: Dahl, "A solid friction model" (1968).
    """
    result, now = np.empty_like(q), np.sign(v)
    steps = np.diff(q, axis=0, prepend=q[:1])
    for k, (sign, kept) in enumerate(zip(np.sign(steps), np.exp(-np.abs(steps) / PRESLIDING), strict=True)):
        now = sign + (now - sign) * kept
        result[k] = now
    return result


@dataclass(frozen=True)
class FrictionLaw:
    """Which terms the friction of each joint has; the simple law by default.

    Attributes:
        stribeck_speeds: Grid of speeds of the Stribeck terms [rad/s].
        has_asymmetry: Whether viscous friction differs between the directions.
        has_load: Whether Coulomb friction grows with the load.
        ripple_cycles: Cycles per turn of ripples over the joint's own position.
        has_armature: Whether the torques contain armature, which is then part of the simple law.
    """

    stribeck_speeds: tuple[float, ...] = ()
    has_asymmetry: bool = False
    has_load: bool = False
    ripple_cycles: tuple[float, ...] = ()
    has_armature: bool = False

    def __post_init__(self) -> None:
        if any(value <= 0.0 for value in (*self.stribeck_speeds, *self.ripple_cycles)):
            found = (*self.stribeck_speeds, *self.ripple_cycles)
            raise ParameterOutOfRange("speeds [rad/s] and cycles of the friction law", found, "positive numbers")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the K parameters of each joint, the simple law's first."""
        result = [*SIMPLE, *["I_a"] * self.has_armature]
        result += [f"stribeck_{speed:g}" for speed in self.stribeck_speeds]
        result += ["asymmetry"] * self.has_asymmetry + ["load"] * self.has_load
        result += [f"ripple_{cycles:g}_{part}" for cycles in self.ripple_cycles for part in ("sin", "cos")]
        return tuple(result)

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """Columns of the optional terms by group: all Stribeck speeds, both parts of a ripple."""
        groups: dict[str, tuple[int, ...]] = {}
        for k, name in enumerate(self.names):
            group = name.removesuffix("_sin").removesuffix("_cos")
            group = "stribeck" if group.startswith("stribeck") else group
            if group not in (*SIMPLE, "I_a"):
                groups[group] = (*groups.get(group, ()), k)
        return groups

    def columns(self, q: Array, v: Array, a: Array, turned: Array, load: Array) -> Array:
        """Evaluate the terms.

        Args:
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            a: Accelerations, (N, n) [rad/s^2].
            turned: Directions of friction before sliding, (N, n) [-].
            load: Torques that the nominal arm needs, (N, n) [Nm].

        Returns:
            Columns, (N, n, K): the friction torque of joint j is ``columns[:, j] @ parameters[j]``.
        """
        sign = np.tanh(v / SIGN_SPEED)
        result = [sign, v, np.ones_like(v), turned - sign, *[a] * self.has_armature]
        result += [sign * np.exp(-np.abs(v) / speed) for speed in self.stribeck_speeds]
        result += [np.abs(v)] * self.has_asymmetry + [sign * np.abs(load)] * self.has_load
        for cycles in self.ripple_cycles:
            result += [np.sin(cycles * q), np.cos(cycles * q)]
        return np.stack(result, axis=2)
