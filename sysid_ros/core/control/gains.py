"""Choice of gains: the highest whose loops keep their margins, by stiffness, delay, noise and period.

One bandwidth serves all joints: the tracking bound is proven for feedback shaped by the whole inertia matrix, which
separate gains would not be. So the joint with the least margin decides; :class:`GainChoice` has the margins of the
others. With motor-side sensors that is about ``c < (pi/2) I_a / (1.5 H_jj period)`` over the gain margin: above the
resonance only the armature resists, while the feedback is made for the whole inertia.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.sampled_loop import LoopCase, LoopMargins, SampledLoop
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

GAIN_MARGIN = 1.6
"""Least gain margin of any joint at home [-]; motions elsewhere are checked by their tracking bound."""
PHASE_MARGIN = np.radians(30.0)
"""Least phase margin [rad]."""
NOISE_SHARE = 0.1
"""Largest share of a torque limit that errors of the sensors may command [-]."""
_BANDWIDTH_PERIOD = 0.2
"""Bandwidth of the robust controller times period, as at 1 ms; more loses its phase margin to delay and hold [-]."""
_SLOW_SHARE = 0.1
"""Largest rate of position error and integral over the bandwidth: three times that decays as one loop."""


@dataclass(frozen=True)
class GainChoice:
    """Gains of an arm and its margins.

    Attributes:
        settings: The gains.
        margins: Least margins over all postures, payloads and stiffnesses.
        noise: Largest torque that errors of the sensors command, over the limit, (n,) [-].
    """

    settings: RobustSettings
    margins: LoopMargins
    noise: Array


def loop_cases(robot: RobotModel) -> Iterator[LoopCase]:
    """List the arms that gains are chosen for: at home, the hand empty or with half of the rated payload, known."""
    for share in (0.0, 0.5):
        total = add_payload(robot.theta_nominal, _payload(robot, share))
        for stiffness in (-1.0, 1.0) if robot.elasticity is not None else (0.0,):
            yield LoopCase(robot.home, total, total, stiffness)


def _noise_share(robot: RobotModel, loops: Sequence[SampledLoop]) -> Array:
    """Return the largest torque that errors of the sensors command over the torque limit, (n,) [-]."""
    sensors, n = robot.sensors, robot.n
    velocity = np.zeros(n) if sensors.velocity_is_difference else sensors.velocity_error
    position = np.broadcast_to(0.5 * sensors.position_resolution, n)
    torques = [np.abs(loop.noise[0]) @ velocity + np.abs(loop.noise[1]) @ position for loop in loops]
    return np.asarray(np.max(torques, axis=0) / robot.limits.tau_continuous)


def default_gains(robot: RobotModel, period: float = RobustSettings().period) -> RobustSettings:
    """Return the default gains of an arm: lower ones at long periods and with elastic joints.

    Args:
        robot: The arm.
        period: Time between two torques [s]; the delay may be as long.

    Raises:
        SysidError: The joints are so elastic that no gains keep their margins.
    """
    bandwidth = min(RobustSettings().bandwidth, _BANDWIDTH_PERIOD / period)
    settings = RobustSettings(bandwidth=bandwidth, period=period, delay=period)
    return settings if robot.elasticity is None else choose_gains(robot, settings).settings


@lru_cache(maxsize=8)
def choose_gains(robot: RobotModel, settings: RobustSettings) -> GainChoice:
    """Choose the highest bandwidth, up to that of ``settings``, whose loops keep their margins.

    Rates of position error and integral are those of ``settings``, at most a tenth of the bandwidth.

    Raises:
        SysidError: There is none.
    """
    bandwidth = settings.bandwidth
    while bandwidth >= 10.0:
        tried = with_bandwidth(settings, bandwidth)
        loops = [SampledLoop(robot, tried, case) for case in loop_cases(robot)]
        margins, noise = LoopMargins.least(loop.margins() for loop in loops), _noise_share(robot, loops)
        keeps = (margins.gain >= GAIN_MARGIN) & (margins.phase >= PHASE_MARGIN) & (noise <= NOISE_SHARE)
        if keeps.all():  # not where the loop is unstable, whose margins are NaN
            return GainChoice(tried, margins, noise)
        bandwidth /= 10.0**0.1
    worst = int(np.argmin(np.nan_to_num(margins.gain, posinf=np.inf)))
    raise SysidError(
        f"no gains keep the margins with these elastic joints: {robot.joint_names[worst]} has too little at a "
        f"bandwidth of {tried.bandwidth:.3g} 1/s; damp the joints (elasticity.torque_damping), measure on the motor "
        "side, or shorten the delay"
    )


def with_bandwidth(settings: RobustSettings, bandwidth: float) -> RobustSettings:
    """Return settings with another bandwidth, and rates of position error and integral that go with it."""
    slow = _SLOW_SHARE * bandwidth
    gains = min(settings.position_gain, slow), min(settings.integral_gain, slow)
    return replace(settings, bandwidth=bandwidth, position_gain=gains[0], integral_gain=gains[1])


def _payload(robot: RobotModel, share: float) -> Array:
    """Return a payload of this share of the rated mass, at the middle of the prior's CoM, (10,)."""
    prior, mass = robot.payload_prior, share * robot.rated_payload
    if prior.shape is None:
        return np.asarray(mass / max(prior.nominal[0], 1e-9) * prior.nominal)
    return from_com_form(mass, prior.shape.com.center, mass * prior.shape.gyration**2 / 2.0 * np.eye(3))
