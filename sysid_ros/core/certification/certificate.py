"""The certificate a trajectory needs before any arm executes it: what was checked, for which plan and which model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.trajectories.base import Array, Trajectory, fingerprint

METHODS = ("sampled", "interval")

_START_TOLERANCE = 1e-9
"""Largest difference between the start a certificate states and that of the trajectory [rad, rad/s, rad/s^2]."""
_SAME_TIME = 1e-9
"""Largest difference of two times that count as the same [s]."""
_SHORT = 12
"""Digits of a hash in messages."""


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
class AssumedControl:
    """What the tracking bound of a certificate rests on: who controls the arm, and what was before the motion.

    Attributes:
        law: Control law with its settings, in words; that of the controller must be the same.
        nominal_payload: Payload the controller takes for true, (10,).
        rest_before: How long the arm must have been held at rest before a motion from rest [s].
        after: ``hash()`` of the plan it takes over from; empty for a motion from rest.
        after_time: Time of that plan at which it takes over [s].
    """

    law: str
    nominal_payload: Array
    rest_before: float = 0.0
    after: str = ""
    after_time: float = 0.0

    def __post_init__(self) -> None:
        payload = np.array(self.nominal_payload, dtype=float)
        if payload.shape != (10,) or not np.all(np.isfinite(payload)):
            raise CertificateMismatch(f"its nominal payload is {payload}; it must be 10 finite numbers")
        payload.setflags(write=False)
        object.__setattr__(self, "nominal_payload", payload)

    def matches(self, law: str, payload: Array, rested: float, after: str = "", after_time: float = 0.0) -> None:
        """Checks that the motion happens as assumed.

        Args:
            law: Control law of the controller.
            payload: Payload it takes for true during the motion, (10,).
            rested: How long the arm has been held at rest [s].
            after: ``hash()`` of the plan it takes over from; empty for a motion from rest.
            after_time: Time of that plan at which it takes over [s].

        Raises:
            CertificateMismatch: Something differs; says what.
        """
        if law != self.law:
            raise CertificateMismatch(f"its tracking bound is for the controller '{self.law}', in use is '{law}'")
        if not np.array_equal(payload, self.nominal_payload):
            different = np.flatnonzero(np.asarray(payload) != self.nominal_payload)[0]
            raise CertificateMismatch(
                f"its tracking bound is for a controller that takes payload parameter {different} for "
                f"{self.nominal_payload[different]:.6g}, but it takes it for {payload[different]:.6g}"
            )
        if after != self.after or abs(after_time - self.after_time) > _SAME_TIME:
            assumed, actual = _begin(self.after, self.after_time), _begin(after, after_time)
            raise CertificateMismatch(f"it is about {assumed}, not {actual}")
        if not after and rested < self.rest_before:
            raise CertificateMismatch(
                f"the arm has been held for {rested:.2f} s, but it holds after {self.rest_before:.2f} s; try again then"
            )


def _begin(after: str, time: float) -> str:
    return f"taking over from plan {after[:_SHORT]} at {time:.3f} s" if after else "a motion from rest"


@dataclass(frozen=True)
class Certificate:
    """What was checked of one trajectory with one set of parameter boxes in one scene.

    Attributes:
        plan_hash: ``hash()`` of the trajectory.
        box_hash: :func:`box_hash` of the parameter boxes.
        start_q: Position the motion starts at, (n,) [rad].
        method: How it was checked: "sampled" (at samples only, no proof) or "interval" (over continuous time).
        claims: One sentence of what was and what was not checked.
        margins: Smallest distance to each kind of limit, by name with unit; none is negative.
        tracking_bound: Largest position error the checks allow for, (n,) [rad].
        issued_at: Time of issue [s since the epoch of the loop's clock].
        expires_at: Time it becomes worthless [s since the epoch of the loop's clock].
        brake_time: Time to rest of the stops along the path that were checked too [s]; 0 if none were.
        scene_hash: ``hash()`` of the scene; empty if it states none.
        start_v: Velocity the motion starts with, (n,) [rad/s]; None if it states none.
        start_a: Acceleration the motion starts with, (n,) [rad/s^2]; None if it states none.
        velocity_bound: Largest velocity error the checks allow for, (n,) [rad/s]; None if it states none.
        torque_bound: Largest torque of the feedback the checks allow for, (n,) [Nm]; None if it states none.
        places: Where (joint, links) and when each margin is smallest, by the names of ``margins``.
        torque_fraction: Part of the torque limits that may be used [-].
        control: What the tracking bound rests on; None if it states nothing.
        robot_hash: ``robot_hash()`` of the robot; empty if it states none.

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
    scene_hash: str = ""
    start_v: Array | None = None
    start_a: Array | None = None
    velocity_bound: Array | None = None
    torque_bound: Array | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    torque_fraction: float = 1.0
    control: AssumedControl | None = None
    robot_hash: str = ""

    def __post_init__(self) -> None:
        for name in _VECTORS:
            if getattr(self, name) is not None:
                values = np.array(getattr(self, name), dtype=float)
                values.setflags(write=False)
                object.__setattr__(self, name, values)
        object.__setattr__(self, "margins", {str(key): float(value) for key, value in self.margins.items()})
        object.__setattr__(self, "places", {str(key): str(value) for key, value in self.places.items()})
        if self.method not in METHODS:
            raise CertificateMismatch(f"method '{self.method}' is unknown; allowed: {', '.join(METHODS)}")
        if not self.expires_at > self.issued_at:
            raise CertificateMismatch(f"it expires at {self.expires_at} s, not after its issue at {self.issued_at} s")

    def matches(
        self, trajectory: Trajectory, *boxes: Box, scene_hash: str | None = None, now: float | None = None
    ) -> None:
        """Checks that this certificate is about this trajectory, these boxes and this scene, and still valid.

        Args:
            trajectory: Trajectory to execute.
            boxes: Parameter boxes of the model in use, in the order of :func:`box_hash`.
            scene_hash: ``hash()`` of the scene the arm is in; None leaves the scene unchecked.
            now: Time of the loop's clock [s]; None leaves the expiry unchecked.

        Raises:
            CertificateMismatch: It is about something else, or expired.
        """
        _require_same_hash("plan", self.plan_hash, "the plan is", trajectory.hash(), "")
        model = "the model in use has"
        _require_same_hash("parameter box", self.box_hash, model, box_hash(*boxes), "; certify the plan again")
        if scene_hash is not None:
            scene = "the arm is in"
            _require_same_hash("scene", self.scene_hash, scene, scene_hash, "; certify the plan again")
        self._require_start_of(trajectory)
        if now is not None and not self.issued_at <= now < self.expires_at:
            raise CertificateMismatch(
                f"it is valid from {self.issued_at:.3f} s to {self.expires_at:.3f} s, but the time is {now:.3f} s"
            )

    def to_dict(self) -> dict[str, object]:
        """A dictionary of plain numbers, texts and lists, fit for JSON and YAML."""
        return {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self)}

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
        control = data["control"]
        if control is not None:
            try:
                control = AssumedControl(**control)  # type: ignore[arg-type]
            except TypeError as error:
                raise CertificateMismatch(f"its entry control is {control}: {error}") from error
        return cls(**{**data, "control": control})  # type: ignore[arg-type]

    def _require_start_of(self, trajectory: Trajectory) -> None:
        stated = (self.start_q, self.start_v, self.start_a)
        for value, actual, unit in zip(stated, trajectory.evaluate(0.0), ("rad", "rad/s", "rad/s^2"), strict=True):
            if value is None:
                continue
            if value.shape != actual.shape:
                raise CertificateMismatch(f"its start has {value.size} joints, the plan has {actual.size}")
            difference = np.where(np.isfinite(value), value - actual, np.inf)
            joint = int(np.argmax(np.abs(difference)))
            if abs(difference[joint]) > _START_TOLERANCE:
                raise CertificateMismatch(
                    f"it starts {difference[joint]:.6f} {unit} away from the plan at joint {joint + 1}"
                )


_VECTORS = ("start_q", "tracking_bound", "start_v", "start_a", "velocity_bound", "torque_bound")


def _require_same_hash(what: str, issued_for: str, phrase: str, actual: str, advice: str) -> None:
    if issued_for != actual:
        raise CertificateMismatch(
            f"it was issued for {what} {issued_for[:_SHORT] or 'none'}, but {phrase} {actual[:_SHORT]}{advice}"
        )


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, AssumedControl):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
    return dict(value) if isinstance(value, Mapping) else value


_TIME = re.compile(r", ([0-9.]+) s$")
"""How the place of a margin ends."""


@dataclass(frozen=True)
class MarginRow:
    """One margin of a certificate.

    Attributes:
        kind: What was checked, as in "self-collision".
        value: What is left, with its unit: shares of a limit in percent, distances in mm.
        place: Joint or links and time of it; empty where the certificate does not say.
        time: The time alone, since the start of the plan [s]; None where the certificate does not say.
        margin: The number, in the unit of the certificate.
    """

    kind: str
    value: str
    place: str
    time: float | None
    margin: float


def margin_rows(certificate: Certificate) -> tuple[MarginRow, ...]:
    """All margins of a certificate in its order."""
    rows = []
    for name, margin in certificate.margins.items():
        kind, _, unit = name.partition(" [")
        unit = unit.rstrip("]")
        if unit == "-":
            percent = 100.0 * margin
            value = f"{percent:.1f} %" if percent >= 0.1 or percent == 0.0 else f"{percent:.1g} %"
        elif unit == "m":
            value = f"{1e3 * margin:.0f} mm"
        else:
            value = f"{margin:.3g} {unit}".rstrip()
        place = certificate.places.get(name, "")
        time = _TIME.search(place)
        rows.append(MarginRow(kind, value, place, float(time[1]) if time else None, margin))
    return tuple(rows)
