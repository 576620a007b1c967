"""Settings of the estimation."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting

TARGETS = ("payload", "end_effector")
PAYLOAD, ALL_BODIES = "payload", "all"
METHODS = ("set_membership", "left_inverse")
QUADRATURES = ("trapezoid", "forward_euler")
ERROR_TERMS = (
    "torque_relative",
    "torque_absolute",
    "torque_interpolation",
    "torque_lag",
    "torque_drift",
    "encoder",
    "velocity",
    "jitter",
    "quadrature",
    "coulomb",
    "friction",
    "gravity",
    "calibration",
    "elasticity",
    "rounding",
)
"""Terms of the error budget of a row, in the order of its columns (docs/theory/bounds.md derives them)."""

SHARED_TERMS = ("velocity", "encoder", "velocity", "encoder", "torque_absolute")
"""Terms of the errors that rows share, n each: at the ends of windows, inside, and of the torque up to the ends."""


@dataclass(frozen=True)
class EstimatorSettings(Settings):
    """Settings of the estimator."""

    body: str = setting(PAYLOAD)
    """payload: the last body, with the payload prior of the robot; the name of a joint or link: that body, with a prior
    of body_mass and body_reach; all: all bodies, as the combinations that joint torques determine."""
    target: str = setting("payload", choices=TARGETS)
    """payload: identify the load of the body, which is known up to its box; end_effector: identify body and load
    together, as SAFE-ID does. With body all always whole bodies."""
    body_mass: float = setting(5.0, "kg", lower=1e-3, upper=1000.0)
    """Largest mass of an object on a body that is given by name."""
    body_reach: float = setting(0.3, "m", lower=1e-3, upper=10.0)
    """Every part of that object is within this distance of the origin of the body's joint frame."""
    payload_in_hand: bool = setting(False)
    """Whether the hand may hold a payload of the prior (true) or is empty (false), where another body or all are
    identified."""
    gripper: str = setting("")
    """State of the gripper, as the settings of the robot name it, such as open; empty: any of them."""
    friction_range: float = setting(0.0, "-", lower=0.0, upper=100.0)
    """0: friction lies in the robot's box. Above: it is estimated, F_c, F_v and I_a from 0 to this multiple of the
    largest value in their box, beta within plus or minus it. On the link side F_c and F_v are those behind the sensor.
    """
    method: str = setting("set_membership", choices=METHODS)
    """How bounds are computed: set_membership: rigorous, the smallest box; left_inverse: rigorous, wider, faster."""
    window_duration: float = setting(0.1, "s", lower=0.005, upper=5.0)
    """Length of a momentum window; SAFE-ID uses 0.1. Longer where torques vibrate (at most 0.5 s) and for calibrations
    from more than 300 windows (at most 0.2 s)."""
    quadrature: str = setting("trapezoid", choices=QUADRATURES)
    """Rule for the integrals over a window; forward_euler is the paper's, with a larger error term."""
    error_terms: tuple[str, ...] = setting(ERROR_TERMS, choices=ERROR_TERMS)
    """Terms of the error budget that count; leaving one out voids the guarantee unless that error is absent, and
    the guarantee sentence says so."""
    gravity_cone: float = setting(0.0, "rad", lower=0.0, upper=0.2)
    """Half angle of the cone around nominal gravity that holds the true direction."""
    torque_lag: float = setting(0.0, "s", lower=0.0, upper=0.2)
    """Known lag of the torque signal behind position and velocity; with it, or a tolerance, a held torque counts as
    constant between its samples."""
    torque_lag_tolerance: float = setting(0.0, "s", lower=0.0, upper=0.05)
    """Largest error of torque_lag, constant in time, separate for each joint."""
    tare_drift: float = setting(5e-5, "1/s", lower=0.0, upper=1.0)
    """Drift of friction and torque offsets after a tare, in shares of their largest value. Assumed: 18 % in an hour,
    about as much as harmonic drives lose while they warm up."""
    torque_offset: float = setting(0.0, "Nm", lower=0.0, upper=50.0)
    """Radius of an unknown constant offset of each torque signal, on top of the offset box of the robot."""
    stiction_speed: float = setting(0.01, "rad/s", lower=0.0, upper=0.5)
    """Below this speed the Coulomb torque may be anything between -F_c and F_c."""
    stribeck_friction: float = setting(0.0, "-", lower=0.0, upper=100.0)
    """Largest friction at creep speed beyond the simple law, as a multiple of the largest F_c of each joint; it falls
    as exp(-|v| / stribeck_speed). 0 for this and the next terms: the simple law holds."""
    stribeck_speed: float = setting(0.1, "rad/s", lower=1e-3, upper=10.0)
    """Speed at which that friction has fallen to 37 %."""
    friction_asymmetry: float = setting(0.0, "-", lower=0.0, upper=100.0)
    """How much viscous friction may differ between the directions, as a multiple of the largest F_v, each way."""
    load_friction: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Friction that grows with the load: largest share of the joint torque."""
    friction_ripple: float = setting(0.0, "-", lower=0.0, upper=100.0)
    """Largest friction that depends on the position, or on anything else, as a multiple of the largest F_c."""
    acceleration_factor: float = setting(3.0, "-", lower=0.1, upper=100.0)
    """The true acceleration never exceeds this multiple of the planning limit a_max; steps that show more are left out.
    """
    acceleration_change: float = setting(0.5, "-", lower=0.0, upper=100.0)
    """Largest change of an acceleration between two samples, as a multiple of a_max, while no joint may stick or
    reverse; in longer steps in each 0.015 s begun."""
    max_gap: float = setting(0.0, "s", lower=0.0, upper=1.0)
    """Samples further apart than this are not joined. 0 follows the measured rate: 1.5 median steps, but at least
    0.015 s and at most 0.05 s."""
    rest_interval: float = setting(1.0, "s", lower=0.0, upper=60.0)
    """At rest, at most one window in this time counts, if its torque has changed or a minute has passed; 0: all count.
    A change of the payload at rest is noticed that late."""
    derivative_spacing: float = setting(0.02, "s", lower=1e-3, upper=1.0)
    """Spacing of the samples at which derivatives of the regressors are taken."""
    update_windows: int = setting(15, "windows", lower=1, upper=1000)
    """Bounds are renewed after this many windows; the first ones of a single body also after a third and two thirds. A
    slow consistency check delays that by a window."""
    max_windows: int = setting(30, "windows", lower=20, upper=100000)
    """Rows of older windows are compacted beyond this many."""
    bound_tolerance: float = setting(1e-2, "-", lower=1e-9, upper=0.1)
    """How far set_membership may be from the smallest box, relative to its width."""
    use_cone: bool = setting(True)
    """Whether set_membership also uses linear cuts of the cone of physically consistent bodies and of the shape of the
    prior."""
    reweightings: int = setting(3, "-", lower=0, upper=100)
    """Steps from the least-squares left inverse to the one with the narrowest bounds."""
    prior_weight: float = setting(1e-3, "-", lower=0.0, upper=1.0)
    """Weight of the nominal payload in the point estimate, relative to a standard deviation of one prior radius."""
    detect_payload_change: bool = setting(False)
    """Whether inconsistent windows start a new estimate with a notice (true) or raise the alarm (false)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.body:
            raise ParameterOutOfRange("body", self.body, f"{PAYLOAD}, {ALL_BODIES}, or the name of a joint or link")

    @property
    def left_out_terms(self) -> tuple[str, ...]:
        """Return the terms of the error budget that do not count."""
        return tuple(name for name in ERROR_TERMS if name not in self.error_terms)
