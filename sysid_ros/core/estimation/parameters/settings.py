"""What a user can choose about the estimation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange

TARGETS = ("payload", "end_effector")
PAYLOAD, ALL_BODIES = "payload", "all"
METHODS = ("set_membership", "left_inverse", "sensitivity")
QUADRATURES = ("trapezoid", "forward_euler")
ERROR_TERMS = (
    "torque_relative",
    "torque_absolute",
    "torque_interpolation",
    "torque_lag",
    "encoder",
    "velocity",
    "jitter",
    "quadrature",
    "coulomb",
    "gravity",
    "rounding",
)
"""Terms of the error budget of a row, in the order of its columns (docs/theory/bounds.md derives them)."""

_RANGES = {
    "body_mass": (1e-3, 1000.0, "kg"),
    "body_reach": (1e-3, 10.0, "m"),
    "friction_range": (0.0, 100.0, "-"),
    "window_duration": (0.005, 5.0, "s"),
    "gravity_cone": (0.0, 0.2, "rad"),
    "torque_lag": (0.0, 0.2, "s"),
    "torque_lag_tolerance": (0.0, 0.05, "s"),
    "torque_offset": (0.0, 50.0, "Nm"),
    "stiction_speed": (0.0, 0.5, "rad/s"),
    "acceleration_factor": (0.1, 100.0, "-"),
    "acceleration_change": (0.0, 100.0, "-"),
    "max_gap": (1e-4, 1.0, "s"),
    "rest_interval": (0.0, 60.0, "s"),
    "sensitivity_spacing": (1e-3, 1.0, "s"),
    "update_windows": (1, 1000, "windows"),
    "max_windows": (20, 100000, "windows"),
    "bound_tolerance": (1e-9, 0.1, "-"),
    "reweightings": (0, 100, "-"),
    "prior_weight": (0.0, 1.0, "-"),
}


@dataclass(frozen=True)
class EstimatorSettings:
    """Settings of the estimator; each is checked on construction.

    Attributes:
        body: Which body is identified: ``payload``: the last one, with the payload prior of the robot; the name of a
            joint or link: the body that the joint moves or the link belongs to, with a prior of ``body_mass`` and
            ``body_reach``; ``all``: all bodies at once, as combinations that joint torques can tell.
        target: ``payload``: identify what the body carries, the body itself is known up to its box; ``end_effector``:
            identify the body and what it carries together, as SAFE-ID does with the last one. With ``all`` it is
            always the whole bodies.
        body_mass: Largest mass of an object on a body that is given by name [kg], 0.001 to 1000.
        body_reach: Every part of that object is within this distance of the origin of the body's joint frame [m],
            0.001 to 10.
        payload_in_hand: Whether, where another body or all are identified, the hand may hold a payload of the prior
            (true) or is empty (false).
        friction_range: 0: friction lies in the box of the robot. Above: it is estimated as well, ``F_c``, ``F_v`` and
            ``I_a`` from 0 to this multiple of the largest value in their box, ``beta`` within plus or minus this
            multiple [-], 0 to 100. With ``all`` friction then has bounds of its own.
        method: How bounds are computed: ``set_membership`` (rigorous, the smallest box), ``left_inverse`` (rigorous,
            wider, faster) or ``sensitivity`` (SAFE-ID Theorem 13 at the nominal point, a baseline without guarantee).
        window_duration: Length of a momentum window [s], 0.005 to 5. SAFE-ID uses 0.1.
        quadrature: Rule for the integrals: ``trapezoid`` or ``forward_euler`` (the paper's; larger error term).
        error_terms: Terms of the error budget that count, any of :data:`ERROR_TERMS`; leaving one out voids the
            guarantee unless that error is absent, and the guarantee sentence says so.
        gravity_cone: Half angle of the cone around nominal gravity that holds the true direction [rad], 0 to 0.2.
        torque_lag: Known lag of the torque signal behind position and velocity [s], 0 to 0.2. With a lag or a
            tolerance a held torque is taken as constant between its samples.
        torque_lag_tolerance: Largest error of ``torque_lag``, constant in time, of each joint by itself [s], 0 to 0.05.
        torque_offset: Half width of an unknown constant offset of each torque signal [Nm], 0 to 50; on top of the
            offset box of the robot.
        stiction_speed: Below this speed the Coulomb torque may be anything between -F_c and F_c [rad/s], 0 to 0.5.
        acceleration_factor: The true acceleration never exceeds this multiple of the robot's planning limit ``a_max``
            [-], 0.1 to 100; bounds what happens between samples. Steps that show more are left out.
        acceleration_change: Between two samples, while no joint may stick or reverse, the acceleration of a joint
            changes by at most this multiple of ``a_max`` [-], 0 to 100. With a held torque that is the change of
            the smooth forces within one period.
        max_gap: Samples further apart than this are not joined [s], 1e-4 to 1.
        rest_interval: While the arm rests, one window in this time counts, for they all say the same [s], 0 to 60;
            0 takes all of them. A change of the payload at rest is noticed that late.
        sensitivity_spacing: Distance of the samples at which derivatives of the regressors are taken [s], 1e-3 to 1.
        update_windows: Bounds and intersection are renewed after this many windows, 1 to 1000.
        max_windows: Rows of older windows are compacted beyond this many, 20 to 100000.
        bound_tolerance: How far ``set_membership`` may be from the smallest box, relative to its width [-], 1e-9
            to 0.1.
        use_cone: Whether ``set_membership`` also uses linear cuts of the cone of physically consistent bodies, new ones
            with every update.
        reweightings: Steps from the least-squares left inverse towards the one with the narrowest bounds, 0 to 100.
        prior_weight: Weight of the nominal payload in the point estimate, relative to a standard deviation of one prior
            radius [-], 0 to 1; keeps it defined where the data say nothing.
        detect_payload_change: Whether windows that contradict the bounds so far start a new estimate with a notice
            (true) or raise the alarm (false).
    """

    body: str = PAYLOAD
    target: str = "payload"
    body_mass: float = 5.0
    body_reach: float = 0.3
    payload_in_hand: bool = False
    friction_range: float = 0.0
    method: str = "set_membership"
    window_duration: float = 0.1
    quadrature: str = "trapezoid"
    error_terms: tuple[str, ...] = ERROR_TERMS
    gravity_cone: float = 0.0
    torque_lag: float = 0.0
    torque_lag_tolerance: float = 0.0
    torque_offset: float = 0.0
    stiction_speed: float = 0.01
    acceleration_factor: float = 3.0
    acceleration_change: float = 0.5
    max_gap: float = 0.015
    rest_interval: float = 1.0
    sensitivity_spacing: float = 0.02
    update_windows: int = 15
    max_windows: int = 30
    bound_tolerance: float = 1e-2
    use_cone: bool = True
    reweightings: int = 3
    prior_weight: float = 1e-3
    detect_payload_change: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("target", TARGETS), ("method", METHODS), ("quadrature", QUADRATURES)):
            if getattr(self, name) not in allowed:
                raise ParameterOutOfRange(name, getattr(self, name), "one of " + ", ".join(allowed))
        unknown = sorted(set(self.error_terms) - set(ERROR_TERMS))
        if unknown:
            raise ParameterOutOfRange("error_terms", unknown, "any of " + ", ".join(ERROR_TERMS))
        if not self.body:
            raise ParameterOutOfRange("body", self.body, f"{PAYLOAD}, {ALL_BODIES}, or the name of a joint or link")
        if self.body == ALL_BODIES and self.method == "sensitivity":
            raise ParameterOutOfRange("method", self.method, f"set_membership or left_inverse with body {ALL_BODIES}")
        for name, (lower, upper, unit) in _RANGES.items():
            value = getattr(self, name)
            if not (np.isfinite(value) and lower <= value <= upper):
                raise ParameterOutOfRange(f"{name} [{unit}]", value, f"{lower:g} to {upper:g}")

    @property
    def left_out_terms(self) -> tuple[str, ...]:
        """Terms of the error budget that do not count."""
        return tuple(name for name in ERROR_TERMS if name not in self.error_terms)
