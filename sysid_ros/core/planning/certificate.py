"""The certificate a trajectory needs before any arm executes it: what was checked, for which plan and which model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sysid_ros.core.errors import SysidError
from sysid_ros.core.model.box import Box
from sysid_ros.core.planning.base import Array, Trajectory, fingerprint

METHODS = ("sampled", "interval")


class CertificateMismatch(SysidError):
    """A certificate that does not allow what is asked.

    Args:
        reason: What does not fit, in one sentence.
    """

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"the certificate does not allow this motion: {reason}")


def box_hash(*boxes: Box) -> str:
    """Fingerprint of parameter boxes, as 64 hex digits.

    Args:
        boxes: The boxes in a fixed order; by convention the arm's (14 n,) and then the payload's (10,).
    """
    return fingerprint("box", *(bound for box in boxes for bound in (box.lower, box.upper)))


@dataclass(frozen=True)
class Certificate:
    """What was checked of one trajectory with one set of parameter boxes.

    Attributes:
        plan_hash: ``hash()`` of the trajectory.
        box_hash: :func:`box_hash` of the parameter boxes.
        start_q: Position the motion starts at, (n,) [rad].
        method: How it was checked: "sampled" (at samples only, no proof) or "interval" (over continuous time).
        claims: One sentence of what was and what was not checked.
        margins: Smallest distance to each kind of limit, by name with unit; all are positive.
        tracking_bound: Largest position error the checks allow for, (n,) [rad].
        issued_at: Time of issue [s since the epoch of the loop's clock].
        expires_at: Time it becomes worthless [s since the epoch of the loop's clock].
        brake_time: Time to rest of the stops along the path that were checked too [s]; 0 if none were.

    Raises:
        CertificateMismatch: The method is unknown, or it expires before it is issued.
    """

    plan_hash: str
    box_hash: str
    start_q: Array
    method: str
    claims: str
    margins: Mapping[str, float]
    tracking_bound: Array
    issued_at: float
    expires_at: float
    brake_time: float = field(default=0.0)

    def __post_init__(self) -> None:
        for name in ("start_q", "tracking_bound"):
            values = np.array(getattr(self, name), dtype=float)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        object.__setattr__(self, "margins", {str(key): float(value) for key, value in self.margins.items()})
        if self.method not in METHODS:
            raise CertificateMismatch(f"method '{self.method}' is unknown; allowed: {', '.join(METHODS)}")
        if not self.expires_at > self.issued_at:
            raise CertificateMismatch(f"it expires at {self.expires_at} s, not after its issue at {self.issued_at} s")

    def matches(self, trajectory: Trajectory, *boxes: Box, now: float | None = None) -> None:
        """Checks that this certificate is about this trajectory and these boxes, and still valid.

        Args:
            trajectory: Trajectory to execute.
            boxes: Parameter boxes of the model in use, in the order of :func:`box_hash`.
            now: Time of the loop's clock [s]; None leaves the expiry unchecked.

        Raises:
            CertificateMismatch: It is about something else, or expired.
        """
        if self.plan_hash != trajectory.hash():
            raise CertificateMismatch(
                f"it was issued for plan {self.plan_hash[:12]}, but the plan is {trajectory.hash()[:12]}"
            )
        if self.box_hash != box_hash(*boxes):
            raise CertificateMismatch(
                f"it was issued for parameter box {self.box_hash[:12]}, but the model in use has "
                f"{box_hash(*boxes)[:12]}; certify the plan again"
            )
        if now is not None and not self.issued_at <= now < self.expires_at:
            raise CertificateMismatch(
                f"it is valid from {self.issued_at:.3f} s to {self.expires_at:.3f} s, but the time is {now:.3f} s"
            )

    def to_dict(self) -> dict[str, object]:
        """A dictionary of plain numbers, texts and lists, fit for JSON and YAML."""
        return {
            "plan_hash": self.plan_hash,
            "box_hash": self.box_hash,
            "start_q": self.start_q.tolist(),
            "method": self.method,
            "claims": self.claims,
            "margins": dict(self.margins),
            "tracking_bound": self.tracking_bound.tolist(),
            "issued_at": float(self.issued_at),
            "expires_at": float(self.expires_at),
            "brake_time": float(self.brake_time),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Certificate:
        """The inverse of :meth:`to_dict`.

        Raises:
            CertificateMismatch: An entry is missing or unknown.
        """
        wanted = cls.__dataclass_fields__
        wrong = sorted(set(wanted) ^ set(data))
        if wrong:
            raise CertificateMismatch(f"its entries {', '.join(wrong)} are missing or unknown")
        return cls(**data)  # type: ignore[arg-type]
