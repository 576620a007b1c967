"""What may be forged in a certificate, field by field: for the driver, and for who verifies recordings."""

from dataclasses import replace

import numpy as np

from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.drivers.loop_types import RefusalCode

NOW = 1000.0
NAN, INF = np.nan, np.inf
OUT_OF_RANGE, OTHER, NOT_PROVEN = RefusalCode.OUT_OF_RANGE, RefusalCode.OTHER_ASSUMPTIONS, RefusalCode.NOT_PROVEN
MALFORMED, EXPIRED = RefusalCode.MALFORMED, RefusalCode.EXPIRED


def scaled(name, factor):
    return lambda one: {name: factor * np.array(getattr(one, name))}


def first(name, value):
    def change(one):
        values = np.array(getattr(one, name))
        values[0] = value
        return {name: values}

    return change


def margins(change):
    return lambda one: {"margins": tuple(change(list(one.margins)))}


def fixed(**changes):
    return lambda one: changes


FIELDS = {
    # margins
    "a negative margin": (margins(lambda m: [replace(m[0], value=-0.1), *m[1:]]), OUT_OF_RANGE, "margin of the"),
    "a margin that is not a number": (margins(lambda m: [replace(m[0], value=NAN), *m[1:]]), OUT_OF_RANGE, "nan"),
    "an infinite margin": (margins(lambda m: [replace(m[0], value=INF), *m[1:]]), OUT_OF_RANGE, "inf"),
    "a margin before the start": (margins(lambda m: [replace(m[0], time=-1.0), *m[1:]]), OUT_OF_RANGE, "-1.0 s"),
    "a margin at no time": (margins(lambda m: [replace(m[0], time=NAN), *m[1:]]), OUT_OF_RANGE, "nan s"),
    "no margins": (margins(lambda m: []), NOT_PROVEN, "no margin of the position limit"),
    "a margin left out": (
        margins(lambda m: [one for one in m if one.limit is not LimitKind.TORQUE]),
        NOT_PROVEN,
        "no margin of the torque limit",
    ),
    "a margin overstated": (
        margins(lambda m: [replace(one, value=one.value + 0.05) for one in m]),
        NOT_PROVEN,
        "states a margin of the position limit",
    ),
    # the part of the torque limits
    "torque fraction 5": (fixed(torque_fraction=5.0), OUT_OF_RANGE, "torque fraction.*is 5.0"),
    "torque fraction 0": (fixed(torque_fraction=0.0), OUT_OF_RANGE, "torque fraction"),
    "torque fraction below 0": (fixed(torque_fraction=-1.0), OUT_OF_RANGE, "torque fraction"),
    "torque fraction not a number": (fixed(torque_fraction=NAN), OUT_OF_RANGE, "torque fraction"),
    "a fraction that does not suffice": (fixed(torque_fraction=0.05), NOT_PROVEN, "torque limit broken"),
    # rest
    "no rest before": (fixed(rest_before=0.0), NOT_PROVEN, "asks for 0.00 s of rest"),
    "less than no rest": (fixed(rest_before=-5.0), OUT_OF_RANGE, "rest before"),
    "rest not a number": (fixed(rest_before=NAN), OUT_OF_RANGE, "rest before"),
    "rest for ever": (fixed(rest_before=1e6), OUT_OF_RANGE, "rest before"),
    # stops
    "brake time 0.05 s": (fixed(brake_time=0.05), OUT_OF_RANGE, "brake time.*0.05 s"),
    "no brake time": (fixed(brake_time=0.0), OUT_OF_RANGE, "brake time"),
    "brake time not a number": (fixed(brake_time=NAN), OUT_OF_RANGE, "brake time"),
    "a stop that never ends": (fixed(brake_time=1e3), OUT_OF_RANGE, "brake time"),
    # validity
    "no expiry": (fixed(expires_at=INF), OUT_OF_RANGE, "validity"),
    "valid for a year": (fixed(expires_at=NOW + 3.2e7), OUT_OF_RANGE, "validity"),
    "expired": (fixed(issued_at=NOW - 100.0, expires_at=NOW - 40.0), EXPIRED, "valid from 900"),
    "not issued yet": (fixed(issued_at=NOW + 5.0, expires_at=NOW + 60.0), EXPIRED, "valid from 1005"),
    # tracking bounds
    "position bound x 10": (
        scaled("tracking_bound", 10.0),
        (OUT_OF_RANGE, NOT_PROVEN),
        "position error|tracking bound",
    ),
    "position bound x 2": (scaled("tracking_bound", 2.0), NOT_PROVEN, "position error.*proven is only"),
    "position bound x 0.5": (scaled("tracking_bound", 0.5), NOT_PROVEN, "proven is no less than"),
    "position bound below 0": (scaled("tracking_bound", -1.0), OUT_OF_RANGE, "must be positive"),
    "position bound 0": (first("tracking_bound", 0.0), OUT_OF_RANGE, "must be positive"),
    "position bound not a number": (first("tracking_bound", NAN), MALFORMED, "must be finite"),
    "position bound infinite": (first("tracking_bound", INF), MALFORMED, "must be finite"),
    "velocity bound x 0.1": (scaled("velocity_bound", 0.1), NOT_PROVEN, "velocity error"),
    "velocity bound above the limit": (first("velocity_bound", 50.0), OUT_OF_RANGE, "velocity bound of joint_1"),
    "velocity bound not a number": (first("velocity_bound", NAN), MALFORMED, "must be finite"),
    "torque bound x 0.5": (scaled("torque_bound", 0.5), NOT_PROVEN, "feedback torque"),
    "torque bound infinite": (first("torque_bound", INF), MALFORMED, "must be finite"),
    "torque bound 0": (first("torque_bound", 0.0), OUT_OF_RANGE, "torque bound"),
    # what it is about
    "another path": (fixed(path_hash="0" * 64), OTHER, "issued for path 000"),
    "no path": (fixed(path_hash=""), OTHER, "issued for path none"),
    "other boxes": (fixed(box_hash="0" * 64), OTHER, "issued for parameter box"),
    "another scene": (fixed(scene_hash="0" * 64), OTHER, "certified for scene"),
    "no scene": (fixed(scene_hash=""), OTHER, "certified for scene none"),
    "another robot": (fixed(robot_hash="0" * 64), OTHER, "for a robot 000"),
    "no robot": (fixed(robot_hash=""), OTHER, "not stated"),
    "another control law": (fixed(control_law=ControlLaw("sampled", ())), OTHER, "sampled"),
    "other gains": (
        lambda one: {"control_law": ControlLaw(one.control_law.name, (("period", 0.5),))},
        OTHER,
        "its tracking bound is for the controller",
    ),
    "another nominal payload": (first("nominal_payload", 9.0), OTHER, "nominal payload has parameter 0 = 9"),
    "an unknown predecessor": (fixed(predecessor="0" * 64, takeover_time=1.5), NOT_PROVEN, "was not proven here"),
}
"""By name: fields of the certificate that are changed, the code, words of the refusal. All are signed with the key."""
