"""Settings of the verifier."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.common.errors import ParameterOutOfRange


@dataclass(frozen=True)
class VerifierSettings:
    """What a plan may use, and how finely its time is divided.

    Attributes:
        torque_fraction: Part of the torque limits that may be used [-].
        brake_times: Times to rest of stops along the path that are tried, ascending [s]; the first that passes is
            noted, and a plan none of them can stop is rejected. Empty leaves stops unchecked.
        piece: Longest piece of time [s].
        shortest_piece: A piece this short whose bound still breaks a limit is not divided further [s].
        rate_tolerance: Share of a velocity, acceleration or torque limit by which a margin may be underestimated for
            want of division, where the plan passes anyway [-].
        distance_tolerance: The same of distances [m] and of distances to position limits [rad].
        validity: Time a certificate is valid [s].

    Raises:
        ParameterOutOfRange: A setting is outside its range.
    """

    torque_fraction: float = 1.0
    brake_times: tuple[float, ...] = (0.5, 0.8, 1.2, 2.0)
    piece: float = 0.15
    shortest_piece: float = 0.002
    rate_tolerance: float = 0.01
    distance_tolerance: float = 0.005
    validity: float = 60.0

    def __post_init__(self) -> None:
        times = self.brake_times
        rising = all(a < b for a, b in zip(times, times[1:], strict=False))
        checks = (
            ("torque_fraction [-]", self.torque_fraction, 0.0 < self.torque_fraction <= 1.0, "above 0, at most 1"),
            ("brake_times [s]", times, rising and 0.0 < min(times, default=1.0) and max(times, default=1.0) < 1e3,
             "ascending, above 0"),
            ("piece [s]", self.piece, 0.0 < self.piece <= 1.0, "above 0, at most 1"),
            ("shortest_piece [s]", self.shortest_piece, 1e-5 <= self.shortest_piece <= 0.1, "1e-5 to 0.1"),
            ("rate_tolerance [-]", self.rate_tolerance, 0.0 < self.rate_tolerance < 1.0, "above 0, below 1"),
            ("distance_tolerance [m]", self.distance_tolerance, 0.0 < self.distance_tolerance < 1.0, "0 to 1"),
            ("validity [s]", self.validity, 0.0 < self.validity <= 86400.0, "above 0, at most 86400"),
        )  # fmt: skip
        for name, value, is_allowed, allowed in checks:
            if not is_allowed:
                raise ParameterOutOfRange(name, value, allowed)
