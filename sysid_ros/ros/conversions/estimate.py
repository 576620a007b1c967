"""Estimates, inertias, and the truth of a simulation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from geometry_msgs.msg import Inertia, Vector3
from numpy.typing import ArrayLike
from std_msgs.msg import Header

from sysid_msgs import msg as messages
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode, EstimateStatus, ParameterEstimate, Quantity
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS, from_com_form, to_com_form
from sysid_ros.ros.conversions.common import (
    Array,
    InvalidMessage,
    fields_of,
    message_of,
    parameter_order,
    rest_fields,
    rest_from_message,
    stamp_to_message,
    to_array,
)


def estimate_to_message(
    estimate: ParameterEstimate, stamp_ns: int, information: ArrayLike | None = None
) -> messages.ParameterEstimate:
    """Convert an estimate to a message.

    Args:
        estimate: The estimate.
        stamp_ns: Stamp of the last sample used [ns].
        information: Gram matrix of the windows, (10, 10); None sends zeros.
    """
    shares = [np.asarray(share, dtype=float) for share in estimate.error_budget.values()]
    return message_of(
        messages.ParameterEstimate,
        estimate,
        header=Header(stamp=stamp_to_message(stamp_ns), frame_id=estimate.frame),
        mass_is_narrower=Quantity.MASS in estimate.narrower,
        com_is_narrower=Quantity.COM in estimate.narrower,
        inertia_is_narrower=Quantity.INERTIA in estimate.narrower,
        **_alarm_fields(estimate.alarm),
        error_terms=list(estimate.error_budget),
        error_shares=to_array("d", np.concatenate(shares) if shares else (), np.float64),
        information=np.zeros(100) if information is None else np.array(information, dtype=float).reshape(100),
        session=estimate.origin[0],
        payload_epoch=estimate.origin[1],
        **rest_fields(estimate.rest),
    )


def estimate_from_message(message: messages.ParameterEstimate) -> ParameterEstimate | None:
    """Return a received estimate in our parameter order; None when the message says that none is given.

    Raises:
        InvalidMessage: Names, units or the number of error shares do not fit, the status claims more than the other
            fields say, or the code of the alarm is unknown.
    """
    if not any(message.names):
        return None
    order = parameter_order("ParameterEstimate", message.names)
    units = tuple(np.array(message.units, dtype=object)[order])
    if units != PARAMETER_UNITS:
        raise InvalidMessage(
            "ParameterEstimate", "units", f"is {', '.join(units)}; needed: {', '.join(PARAMETER_UNITS)}"
        )
    terms = list(message.error_terms)
    if len(message.error_shares) != 10 * len(terms):
        raise InvalidMessage(
            "ParameterEstimate", "error_shares", f"has {len(message.error_shares)} entries for {len(terms)} terms of 10"
        )
    shares = np.asarray(message.error_shares, dtype=float).reshape(-1, 10)[:, order]
    narrower = {
        Quantity.MASS: message.mass_is_narrower,
        Quantity.COM: message.com_is_narrower,
        Quantity.INERTIA: message.inertia_is_narrower,
    }
    given = fields_of(message, ParameterEstimate) | {"names": PARAMETER_NAMES, "units": PARAMETER_UNITS}
    given |= {name: np.asarray(given[name])[order] for name in ("values", "lower", "upper", "is_narrower")}
    estimate = ParameterEstimate(
        **given | {"alarm": _alarm_from_message(message)},
        frame=message.header.frame_id,
        error_budget=dict(zip(terms, shares, strict=True)),
        narrower=frozenset(quantity for quantity, is_narrower in narrower.items() if is_narrower),
        rest=rest_from_message(message),
        origin=(message.session, int(message.payload_epoch)),
    )
    if message.status == EstimateStatus.IDENTIFIED and estimate.status != EstimateStatus.IDENTIFIED:
        raise InvalidMessage(
            "ParameterEstimate", "status", f"is IDENTIFIED, but its other fields say {estimate.status.name}"
        )
    return estimate


def _alarm_fields(alarm: Alarm | None) -> dict[str, int | float | str]:
    if alarm is None:
        return {"alarm_code": messages.ParameterEstimate.NO_ALARM, "alarm_window": -1, "alarm_excess": np.nan}
    return {
        "alarm_code": int(alarm.code),
        "alarm": alarm.text,
        "alarm_joint": alarm.joint or "",
        "alarm_window": -1 if alarm.window is None else alarm.window,
        "alarm_excess": float(alarm.excess),
    }


def _alarm_from_message(message: messages.ParameterEstimate) -> Alarm | None:
    if message.alarm_code == messages.ParameterEstimate.NO_ALARM:
        return None
    if message.alarm_code not in list(AlarmCode):
        codes = ", ".join(f"{code.value} {code.name}" for code in AlarmCode)
        raise InvalidMessage("ParameterEstimate", "alarm_code", f"is {message.alarm_code}; known are {codes}")
    window = None if message.alarm_window < 0 else int(message.alarm_window)
    joint, excess = message.alarm_joint or None, float(message.alarm_excess)
    return Alarm(AlarmCode(message.alarm_code), message.alarm, joint, window, excess)


def nominal_payload_from_message(what: str, values: Sequence[float]) -> Array | None:
    """Return the nominal payload of a controller in a message of type ``what``; None where none is given.

    Raises:
        InvalidMessage: They are not ten finite numbers.
    """
    if not len(values):
        return None
    nominal = np.array(values, dtype=float)
    if nominal.shape != (10,) or not np.all(np.isfinite(nominal)):
        raise InvalidMessage(what, "nominal_payload", f"is {nominal.tolist()}; ten finite numbers are needed")
    return nominal


def information_from_message(message: messages.ParameterEstimate) -> Array:
    """Return the Gram matrix in a received estimate in our parameter order, (10, 10); zeros when no estimate is given.

    Raises:
        InvalidMessage: The names do not fit.
    """
    gram = np.array(message.information, dtype=float).reshape(10, 10)
    if not any(message.names):
        return np.zeros((10, 10))
    order = parameter_order("ParameterEstimate", message.names)
    return gram[np.ix_(order, order)]


def inertia_message(theta: ArrayLike) -> Inertia:
    """Convert ten parameters to mass, CoM and inertia about the CoM, in the same frame."""
    mass, com, inertia = to_com_form(theta)
    x, y, z = map(float, com)
    entries = {f"i{'xyz'[i]}{'xyz'[j]}": float(inertia[i, j]) for i in range(3) for j in range(i, 3)}
    return Inertia(m=float(mass), com=Vector3(x=x, y=y, z=z), **entries)


def inertia_from_message(message: Inertia) -> Array:
    """Return the ten parameters of mass, CoM and inertia about the CoM, in the same frame, (10,)."""
    com, m = message.com, message
    about_com = [[m.ixx, m.ixy, m.ixz], [m.ixy, m.iyy, m.iyz], [m.ixz, m.iyz, m.izz]]
    return from_com_form(m.m, [com.x, com.y, com.z], about_com)


def truth_to_message(
    payload: ArrayLike | None, stamp_ns: int, frame: str, payload_epoch: int = 0
) -> messages.SimulationTruth:
    """Convert the true payload of a simulated arm, (10,) about the last joint's frame; None: nothing attached."""
    return messages.SimulationTruth(
        header=Header(stamp=stamp_to_message(stamp_ns), frame_id=frame),
        valid=payload is not None,
        names=list(PARAMETER_NAMES),
        units=list(PARAMETER_UNITS),
        payload=np.zeros(10) if payload is None else np.array(payload, dtype=float),
        payload_epoch=int(payload_epoch),
    )


def truth_from_message(message: messages.SimulationTruth) -> Array | None:
    """Return the true payload in our parameter order, (10,); None where nothing is attached.

    Raises:
        InvalidMessage: The names do not fit.
    """
    if not message.valid:
        return None
    return np.array(message.payload, dtype=float)[parameter_order("SimulationTruth", message.names)]
