"""Estimates and certificates that say whatever a test wants; nothing was computed or checked."""

from io import StringIO

import numpy as np

from sysid_ros.cli.terminal import WIDTH, make_console
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.control import RobustSettings
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate


def text_of(*parts, width=WIDTH):
    """Texts and tables as a terminal shows them, without spaces at the ends of lines."""
    stream = StringIO()
    make_console(stream, width).print(*parts, sep="\n")
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def make_estimate(values, lower, upper, **changes):
    """An estimate of a payload of the textbook arm, consistent and guaranteed."""
    fields = {
        "method": "left_inverse", "guarantee": "", "is_guaranteed": True, "is_consistent": True, "alarm": None,
        "target": "payload", "frame": "joint_7", "number_of_windows": 1, "data_seconds": 1.0, "condition_number": 1.0,
    }  # fmt: skip
    return ParameterEstimate(values, lower, upper, **{**fields, **changes})


def estimate_around_nominal(robot, **changes):
    """The nominal payload of the prior, known within a twentieth of its box to either side."""
    nominal, around = robot.payload_prior.nominal, 0.05 * robot.payload_prior.box.width
    return make_estimate(nominal, nominal - around, nominal + around, **changes)


def make_certificate(trajectory, **changes):
    n = trajectory.n
    fields = {
        "path_hash": trajectory.hash(), "box_hash": "", "scene_hash": "", "robot_hash": "",
        "control_law": RobustSettings().law, "nominal_payload": np.zeros(10), "predecessor": None, "takeover_time": 0.0,
        "rest_before": 0.0, "tracking_bound": np.full(n, 0.05), "velocity_bound": np.full(n, 1.2),
        "torque_bound": np.full(n, 9.0), "torque_squares": np.zeros((2, n)), "torque_fraction": 1.0, "brake_time": 0.3,
        "claims": "nothing was checked", "margins": (), "issued_at": 0.0, "expires_at": 3600.0,
    }  # fmt: skip
    return Certificate(**{**fields, **changes})
