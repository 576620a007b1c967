"""The certificate a plan needs before any arm executes it: the proven claims, and the assumptions of the proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import box_hash, frozen_payload
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.trajectories.base import Trajectory, fingerprint

Array = NDArray[np.float64]

FORMAT_VERSION = 3
"""Version of recorded plans and certificates; version 1 had no ``plan_id``, 2 no
``torque_squares``."""

_SHORT = 12
"""Digits of a hash in messages."""
_ARRAYS = ("tracking_bound", "velocity_bound", "torque_bound", "torque_squares")


class CertificateMismatch(SysidError):
    """A certificate that does not allow the request; the reason is one sentence."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"the certificate does not allow this motion: {reason}")


@dataclass(frozen=True)
class Margin:
    """Margin of one limit.

    Attributes:
        limit: The limit.
        value: Smallest distance to it, in ``limit.margin_unit``: rad, m, or a share of the limit.
        place: The joint, or the two closest objects.
        time: Time since the start of the plan [s].
    """

    limit: LimitKind
    value: float
    place: str
    time: float

    @property
    def text(self) -> str:
        """The value with its unit: shares of a limit in percent, distances in mm."""
        if self.limit.margin_unit == "m":
            return f"{1e3 * self.value:.0f} mm"
        if self.limit.margin_unit == "rad":
            return f"{self.value:.3g} rad"
        percent = 100.0 * self.value
        return f"{percent:.1f} %" if percent >= 0.1 or percent == 0.0 else f"{percent:.1g} %"


@dataclass(frozen=True)
class Certificate:
    """Proven claims about one plan, and the assumptions of the proof.

    Attributes:
        path_hash: ``hash()`` of the trajectory.
        box_hash: :func:`box_hash` of the boxes of the arm's and the payload's parameters.
        scene_hash: ``hash()`` of the scene.
        robot_hash: ``robot_hash()`` of the robot.
        control_law: Control law of the controller that follows it.
        nominal_payload: Payload the controller computes its torque with, (10,).
        predecessor: ``plan_id`` of the plan it takes over from; None for a start from rest.
        takeover_time: Time of that plan at which it takes over [s]; 0 for a start from rest.
        rest_before: How long the arm must have been held at rest before a start from rest [s].
        tracking_bound: Largest position error that is allowed for, (n,) [rad].
        velocity_bound: Largest velocity error that is allowed for, (n,) [rad/s].
        torque_bound: Largest torque of the feedback that is allowed for, (n,) [Nm].
        is_proven_throughout: Whether these three are proven with no term of the model estimated; drivers that estimate
            them know smaller ones then.
        torque_squares: Bounds of the mean squares of the torques in equal parts of the plan, and in any minute while
            it is held afterwards, (K + 1, n) [Nm^2]; see :mod:`continuous`.
        torque_fraction: Part of the torque limits that may be used [-].
        brake_time: Time to rest of the proven stops along the path [s]; 0 without any.
        claims: One sentence about proven and unproven properties.
        margins: Smallest distance to each limit.
        issued_at: Time of issue [s since the epoch of the loop's clock].
        expires_at: Time it becomes worthless [s since the epoch of the loop's clock].

    Raises:
        CertificateMismatch: It expires before it is issued.
        ParameterOutOfRange: The nominal payload is not 10 finite numbers.
    """

    path_hash: str
    box_hash: str
    scene_hash: str
    robot_hash: str
    control_law: ControlLaw
    nominal_payload: Array
    predecessor: str | None
    takeover_time: float
    rest_before: float
    tracking_bound: Array
    velocity_bound: Array
    torque_bound: Array
    torque_squares: Array
    torque_fraction: float
    brake_time: float
    claims: str
    margins: tuple[Margin, ...]
    issued_at: float
    expires_at: float
    is_proven_throughout: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "nominal_payload", frozen_payload(self.nominal_payload))
        for name in _ARRAYS:
            values = np.array(getattr(self, name), dtype=float)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if not self.expires_at > self.issued_at:
            raise CertificateMismatch(f"it expires at {self.expires_at} s, not after its issue at {self.issued_at} s")

    @cached_property
    def plan_id(self) -> str:
        """Identity of the plan: sha256 over its path and all assumptions of its proof, as 64 hex digits."""
        hashes = (self.path_hash, self.box_hash, self.scene_hash, self.robot_hash, self.predecessor or "rest")
        law, kind = self.control_law, "plan, proven throughout" if self.is_proven_throughout else "plan"
        names = ",".join([kind, *hashes, law.name, *(name for name, _ in law.settings)])
        times = (self.takeover_time, self.rest_before, self.torque_fraction, self.brake_time)
        bounds = (self.tracking_bound, self.velocity_bound, self.torque_bound, self.torque_squares)
        return fingerprint(names, [value for _, value in law.settings], self.nominal_payload, times, *bounds)

    def matches(
        self, trajectory: Trajectory, *boxes: Box, scene_hash: str | None = None, now: float | None = None
    ) -> None:
        """Check that this certificate is about this trajectory, these boxes and this scene, and still valid.

        Args:
            trajectory: Trajectory to execute.
            boxes: Parameter boxes of the model in use, in the order of :func:`box_hash`.
            scene_hash: ``hash()`` of the scene the arm is in; None leaves the scene unchecked.
            now: Time of the loop's clock [s]; None leaves the expiry unchecked.

        Raises:
            CertificateMismatch: It is about something else, or expired.
        """
        _require_same_hash("path", self.path_hash, "the path is", trajectory.hash(), "")
        model = "the model in use has"
        _require_same_hash("parameter box", self.box_hash, model, box_hash(*boxes), "; certify the plan again")
        if scene_hash is not None:
            scene = "the arm is in"
            _require_same_hash("scene", self.scene_hash, scene, scene_hash, "; certify the plan again")
        if now is not None:
            self.require_valid(now)

    def require_valid(self, now: float) -> None:
        """Check that this certificate is valid at a time of the loop's clock [s].

        Raises:
            CertificateMismatch: It is not issued yet, or expired.
        """
        if not self.issued_at <= now < self.expires_at:
            raise CertificateMismatch(
                f"it is valid from {self.issued_at:.3f} s to {self.expires_at:.3f} s, but the time is {now:.3f} s"
            )

    def matches_control(self, law: ControlLaw, nominal_payload: Array) -> None:
        """Check that this certificate is about the controller in use.

        Args:
            law: Control law of the controller.
            nominal_payload: Payload it computes its torque with during the motion, (10,).

        Raises:
            CertificateMismatch: Something differs; says what.
        """
        if law != self.control_law:
            raise CertificateMismatch(
                f"its tracking bound is for the controller '{self.control_law}', in use is '{law}'"
            )
        if not np.array_equal(nominal_payload, self.nominal_payload):
            different = np.flatnonzero(np.asarray(nominal_payload) != self.nominal_payload)[0]
            raise CertificateMismatch(
                f"its tracking bound is for a controller whose nominal payload has parameter {different} = "
                f"{self.nominal_payload[different]:.6g}, in use is {nominal_payload[different]:.6g}"
            )

    def matches_start(self, rested: float) -> None:
        """Check that this certificate is about a start from rest that may happen after resting this long [s].

        Raises:
            CertificateMismatch: It is about a takeover, or the arm has not rested long enough.
        """
        if self.predecessor is not None:
            raise CertificateMismatch(f"it is about {self.beginning}, not a start from rest")
        if rested < self.rest_before:
            raise CertificateMismatch(
                f"the arm has been held for {rested:.2f} s, but it holds after {self.rest_before:.2f} s; try again then"
            )

    @property
    def beginning(self) -> str:
        """How the plan begins, in words."""
        if self.predecessor is None:
            return "a start from rest"
        return f"taking over from plan {self.predecessor[:_SHORT]} at {self.takeover_time:.3f} s"

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary of plain numbers, texts and lists, fit for JSON and YAML."""
        data: dict[str, object] = {"format_version": FORMAT_VERSION, "plan_id": self.plan_id}
        for entry in fields(self):
            value = getattr(self, entry.name)
            data[entry.name] = value.tolist() if isinstance(value, np.ndarray) else value
        data["control_law"] = {"name": self.control_law.name, "settings": dict(self.control_law.settings)}
        data["margins"] = [
            {"limit": margin.limit.value, "value": margin.value, "place": margin.place, "time": margin.time}
            for margin in self.margins
        ]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Certificate:
        """Make a certificate from the result of :meth:`to_dict`.

        Raises:
            CertificateMismatch: It is of another format, an entry is missing, unknown or of the wrong form, or the
                ``plan_id`` does not match its content.
        """
        require_format(data.get("format_version", 1))
        data = {"is_proven_throughout": False, **data}  # older ones do not say it
        wanted = {"format_version", "plan_id", *cls.__dataclass_fields__}
        wrong = sorted(wanted ^ set(data))
        if wrong:
            raise CertificateMismatch(f"its entries {', '.join(wrong)} are missing or unknown")
        values = {name: data[name] for name in cls.__dataclass_fields__}
        try:
            law = data["control_law"]
            values["control_law"] = ControlLaw(str(law["name"]), tuple(law["settings"].items()))  # type: ignore[index]
            values["margins"] = tuple(
                Margin(**{**entry, "limit": LimitKind(entry["limit"])})
                for entry in data["margins"]  # type: ignore[attr-defined]
            )
            certificate = cls(**values)  # type: ignore[arg-type]  # entries are checked where they are used
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise CertificateMismatch(f"an entry is not of the form that to_dict gives: {error}") from error
        certificate.require_id(str(data["plan_id"]))
        return certificate

    def require_id(self, stated: str) -> None:
        """Check a stated ``plan_id``.

        Raises:
            CertificateMismatch: It does not match the content.
        """
        if stated != self.plan_id:
            own = self.plan_id[:_SHORT]
            raise CertificateMismatch(f"its plan_id is {stated[:_SHORT]!r}, but its content has {own}")


def require_format(version: object) -> None:
    """Check the version of a recorded plan or certificate.

    Raises:
        CertificateMismatch: This version cannot be read.
    """
    if version != FORMAT_VERSION:
        raise CertificateMismatch(
            f"it is recorded in format {version}, this version of the package reads format {FORMAT_VERSION} (format 1 "
            "has no plan_id, format 2 no torque_squares); use the version it was recorded with"
        )


def _require_same_hash(what: str, issued_for: str, phrase: str, actual: str, advice: str) -> None:
    if issued_for != actual:
        raise CertificateMismatch(
            f"it was issued for {what} {issued_for[:_SHORT] or 'none'}, but {phrase} {actual[:_SHORT]}{advice}"
        )


@dataclass(frozen=True)
class MarginRow:
    """One margin of a certificate, for people.

    Attributes:
        kind: The kind of limit, as in "self-collision".
        value: The margin with its unit: shares of a limit in percent, distances in mm.
        place: Joint or links and time of it.
        time: The time alone, since the start of the plan [s].
        margin: The number, in the unit of the certificate.
    """

    kind: str
    value: str
    place: str
    time: float
    margin: float


def margin_rows(certificate: Certificate) -> tuple[MarginRow, ...]:
    """Return all margins of a certificate for people, in its order."""
    return tuple(
        MarginRow(one.limit.value, one.text, f"{one.place}, {one.time:.3f} s", one.time, one.value)
        for one in certificate.margins
    )
