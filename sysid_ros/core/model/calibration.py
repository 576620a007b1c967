"""The calibration of an arm as data: bounds of its parameters from recordings of known loads, and its file.

It is about the unknowns that recordings of one arm share:
``[theta (14 n), torque lag of each joint (n), gain g of each joint (n), tilt of gravity (3)]`` in absolute values. It
holds certified rows ``lower <= matrix shared <= upper`` that payload identification adds to its own, and the resulting
box of theta, for controller and planner.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.common.yaml_files import read_yaml

Array = NDArray[np.float64]

FORMAT = "sysid_ros arm calibration 1"


def unusable_calibration(source: str, what: str, value: object, allowed: str) -> ModelError:
    """Return the error of a calibration that cannot be used."""
    return ModelError(f"calibration {source}", f"{what} is {value}; expected {allowed}")


_OPENINGS = {
    "torque_lag": ("the torques of all joints come {low:.2g} to {high:.2g} ms late", 1e3),
    "gravity_direction": ("gravity is tilted by up to {high:.2g} deg", 180.0 / np.pi),
    "friction": ("friction of {subject} is up to {high:.2g} Nm beyond its box", 1.0),
    "torque_offset": ("the torque offset of {subject} is up to {high:.2g} Nm beyond its box", 1.0),
    "torque_gain": ("the torque gain of {subject} is off by up to another {high:.2g} %", 1e2),
    "torque_error": ("the torque of {subject} errs by up to another {high:.2g} Nm, as with a ripple of the gear", 1.0),
    "load": ("in {subject} the hand holds something else than stated, within the payload prior", 1.0),
}
"""The sentence of an opened assumption, by its name, and its unit for people."""


@dataclass(frozen=True)
class Opening:
    """An assumption that recordings contradict and that is therefore opened: widened by a radius.

    Attributes:
        assumption: Its name, as in :class:`~sysid_ros.core.estimation.hypotheses.Assumption` or one of ours.
        subject: The joint or the recording it is about; empty for all joints.
        center: Center of a lag [s]; 0 for all others.
        radius: How far it may be off [rad, Nm, s, -].
        least: The least that explains the data, with the earlier openings [same].
    """

    assumption: str
    subject: str = ""
    center: float = 0.0
    radius: float = 0.0
    least: float = 0.0

    def __str__(self) -> str:
        """Describe it in a clause."""
        text, scale = _OPENINGS[self.assumption]
        low, high = scale * max(self.center - self.radius, 0.0), scale * (self.center + self.radius)
        needed = f" (the data need {scale * self.least:.2g} at least)" if self.least else ""
        return text.format(subject=self.subject, low=low, high=high) + needed


def opened_settings(openings: Sequence[Opening]) -> dict[str, Any]:
    """Return the settings of the estimator with the openings of lag and tilt; all others are no settings."""
    result: dict[str, Any] = {}
    for one in openings:
        if one.assumption == "torque_lag":
            result |= {"torque_lag": one.center, "torque_lag_tolerance": one.radius}
        elif one.assumption == "gravity_direction":
            result["gravity_cone"] = one.radius
    return result


@dataclass(frozen=True)
class CalibrationRecord:
    """Origin and validity of a calibration.

    Attributes:
        serial: Serial number of the arm.
        date: Day of the recordings, ISO 8601.
        expires: Last day on which it may be used, ISO 8601; None: it does not expire.
        firmware: Firmware of the arm, where known.
        temperature: Temperature of the joints or the room, where known [degC].
        offset_change: Largest difference of each torque offset between two recordings, and between them and later use,
            (n,) [Nm].
        gripper: State of the gripper in all recordings, as the robot names it; empty: in one of them, not stated which.
        recordings: A sentence for each recording: its load and length.
        weights: Masses of the reference weights in them [kg].
        share: Share of the allowed errors that the recordings use [-]; None where unknown.
        data: SHA-256 of all samples.
        drift: Rate at which friction, torque offsets and gains drift from the date on: the share of the range they had
            before [1/day]. Assumed: all of it in 200 days, a little longer than a calibration is valid by default;
            offsets of strain gauges and friction of harmonic drives change with temperature, wear and grease.
        openings: Assumptions opened because the recordings contradict them: the bounds hold if nothing else is off.
    """

    serial: str
    date: str
    expires: str | None = None
    firmware: str | None = None
    temperature: float | None = None
    offset_change: tuple[float, ...] = ()
    gripper: str = ""
    recordings: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    share: float | None = None
    data: str | None = None
    openings: tuple[Opening, ...] = ()
    drift: float = 0.005

    def aged(self, today: datetime.date | None = None) -> float:
        """Return the share of their range by which friction, offsets and gains may have moved since its date [-]."""
        days = ((today or datetime.date.today()) - datetime.date.fromisoformat(self.date)).days
        return min(max(days, 0) * self.drift, 1.0)

    def check(self, source: str, today: datetime.date | None = None) -> None:
        """Check that the record can be read and has not expired.

        Raises:
            ModelError: A date is invalid, or the calibration has expired.
        """
        for name, text in (("date", self.date), ("expires", self.expires)):
            try:
                day = None if text is None else datetime.date.fromisoformat(text)
            except ValueError:
                raise unusable_calibration(source, name, text, "a date like 2026-11-22") from None
            if name == "expires" and day is not None and (today or datetime.date.today()) > day:
                raise unusable_calibration(source, "its last day", text, "today or later: calibrate the arm again")
        if not 0.0 <= self.drift < np.inf:
            raise unusable_calibration(source, "its drift", self.drift, "0 or more [1/day]")


@dataclass(frozen=True)
class ConstantBounds:
    """Bounds of K constants of all recordings that are no parameters of the arm: of sensors and mounting.

    Attributes:
        names: Torque lag and gain of each joint, the deviation of gravity from its nominal vector, and F_c and F_v of
            friction behind sensors on the link side; the uncertain ones.
        units: Their units; a gain g means a true torque of ``1 + g`` times the measured one.
        lower: Lower bounds, (K,).
        upper: Upper bounds, (K,).
        prior: Bounds before any data.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    lower: Array
    upper: Array
    prior: Box

    def __len__(self) -> int:
        """Return their number."""
        return len(self.names)


_NO_CONSTANTS = ConstantBounds((), (), np.zeros(0), np.zeros(0), Box(np.zeros(0), np.zeros(0)))


@dataclass(frozen=True)
class ArmCalibration:
    """The proven bounds of one arm; arrays are read-only.

    Attributes:
        robot: Name of the robot model.
        kinematics: Hash of the basis of the rows, see :func:`~.calibrated.hash_kinematics`.
        record: Its origin.
        matrix: Directions of the shared unknowns, (K, 16 n + 3).
        lower: Their lower bounds, (K,).
        upper: Their upper bounds, (K,).
        box: Box of the arm's parameters, (14 n,).
        nominal: New nominal parameters, of bodies that exist, inside the box, (14 n,).
        constants: Bounds of the other shared unknowns, in words; the rows hold them, too.
    """

    robot: str
    kinematics: str
    record: CalibrationRecord
    matrix: Array
    lower: Array
    upper: Array
    box: Box
    nominal: Array
    constants: ConstantBounds = _NO_CONSTANTS

    def __post_init__(self) -> None:
        for name in ("matrix", "lower", "upper", "nominal"):
            array = np.array(getattr(self, name), dtype=float)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if not (np.all(np.isfinite(self.matrix)) and np.all(self.lower <= self.upper)):
            raise unusable_calibration(
                f"of {self.robot}", "a row", "not finite or empty", "finite directions, lower <= upper"
            )


def save_calibration(calibration: ArmCalibration, path: str | Path) -> None:
    """Write a calibration as YAML; numbers keep all their digits."""
    record = {key: value for key, value in vars(calibration.record).items() if value not in (None, (), "")}
    values = {
        "format": FORMAT,
        "robot": calibration.robot,
        "kinematics": calibration.kinematics,
        "record": {key: list(value) if isinstance(value, tuple) else value for key, value in record.items()}
        | ({"openings": [dict(vars(one)) for one in calibration.record.openings]} if record.get("openings") else {}),
        "nominal": calibration.nominal.tolist(),
        "box": {"lower": calibration.box.lower.tolist(), "upper": calibration.box.upper.tolist()},
        "constants": _constants_to_list(calibration.constants),
        "rows": [
            {"lower": float(low), "upper": float(high), "direction": row.tolist()}
            for row, low, high in zip(calibration.matrix, calibration.lower, calibration.upper, strict=True)
        ],
    }
    text = "# Calibration of an arm: load it with `calibration:` in a robot file. Do not edit: the bounds are proven.\n"
    Path(path).write_text(text + yaml.safe_dump(values, sort_keys=False, width=110), encoding="utf-8")


def load_calibration(path: str | Path) -> ArmCalibration:
    """Read a calibration.

    Raises:
        ModelError: The file cannot be read or is not a calibration.
    """
    name = Path(path).name
    values = read_yaml(path)
    if not isinstance(values, Mapping) or values.get("format") != FORMAT:
        found = values.get("format") if isinstance(values, Mapping) else type(values).__name__
        raise unusable_calibration(name, "its format", found, FORMAT)
    try:
        record = dict(values["record"])
        unknown = set(record) - {field.name for field in fields(CalibrationRecord)}
        if unknown:
            raise unusable_calibration(name, "its record", sorted(unknown), "known entries only")
        for key in ("offset_change", "recordings", "weights"):
            record[key] = tuple(record.get(key, ()))
        record["openings"] = tuple(Opening(**one) for one in record.get("openings", ()))
        if any(one.assumption not in _OPENINGS for one in record["openings"]):
            raise unusable_calibration(name, "its openings", record["openings"], f"some of {', '.join(_OPENINGS)}")
        rows = values["rows"]
        count = len(values["nominal"]) // 14
        matrix = np.array([row["direction"] for row in rows], dtype=float).reshape(len(rows), 16 * count + 3)
        return ArmCalibration(
            robot=str(values["robot"]),
            kinematics=str(values["kinematics"]),
            record=CalibrationRecord(**record),
            matrix=matrix,
            lower=np.array([row["lower"] for row in rows], dtype=float),
            upper=np.array([row["upper"] for row in rows], dtype=float),
            box=Box(np.array(values["box"]["lower"]), np.array(values["box"]["upper"])),
            nominal=np.array(values["nominal"], dtype=float),
            constants=_constants_from_list(values.get("constants", [])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise unusable_calibration(
            name, "its content", f"damaged ({error!r})", "as sysid calibrate writes it"
        ) from error


_CONSTANT = ("lower", "upper", "lower_before", "upper_before")


def _constants_to_list(constants: ConstantBounds) -> list[dict[str, str | float]]:
    columns = (constants.lower, constants.upper, constants.prior.lower, constants.prior.upper)
    return [
        {"name": name, "unit": unit} | {key: float(array[k]) for key, array in zip(_CONSTANT, columns, strict=True)}
        for k, (name, unit) in enumerate(zip(constants.names, constants.units, strict=True))
    ]


def _constants_from_list(entries: list[Mapping[str, str | float]]) -> ConstantBounds:
    lower, upper, *before = (np.array([entry[key] for entry in entries], dtype=float) for key in _CONSTANT)
    names, units = (tuple(str(entry[key]) for entry in entries) for key in ("name", "unit"))
    return ConstantBounds(names, units, lower, upper, Box(*before))
