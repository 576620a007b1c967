"""Certificates that say whatever a test wants; nothing was checked."""

import numpy as np

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.control import RobustSettings


def make_certificate(trajectory, **changes):
    fields = {
        "path_hash": trajectory.hash(),
        "box_hash": "",
        "scene_hash": "",
        "robot_hash": "",
        "control_law": RobustSettings().law,
        "nominal_payload": np.zeros(10),
        "predecessor": None,
        "takeover_time": 0.0,
        "rest_before": 0.0,
        "tracking_bound": np.full(trajectory.n, 0.05),
        "velocity_bound": np.full(trajectory.n, 1.2),
        "torque_bound": np.full(trajectory.n, 9.0),
        "torque_squares": np.zeros((2, trajectory.n)),
        "torque_fraction": 1.0,
        "brake_time": 0.3,
        "claims": "nothing was checked",
        "margins": (),
        "issued_at": 0.0,
        "expires_at": 3600.0,
    }
    return Certificate(**{**fields, **changes})
