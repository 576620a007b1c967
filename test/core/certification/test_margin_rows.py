"""Margins of certificates in words."""

import numpy as np

from sysid_ros.core.certification.certificate import Certificate, MarginRow, margin_rows


def test_units_and_places():
    margins = {"torque [-]": 0.0354, "self-collision [m]": 0.0071, "position [rad]": 0.5381, "pieces": 3.0}
    margins["velocity [-]"] = 0.00021
    places = {"torque [-]": "joint 'joint_6', 0.075 s"}
    certificate = Certificate("p", "b", np.zeros(2), "interval", "", margins, np.zeros(2), 0.0, 1.0, places=places)
    assert margin_rows(certificate) == (
        MarginRow("torque", "3.5 %", "joint 'joint_6', 0.075 s", 0.075, 0.0354),
        MarginRow("self-collision", "7 mm", "", None, 0.0071),
        MarginRow("position", "0.538 rad", "", None, 0.5381),
        MarginRow("pieces", "3", "", None, 3.0),
        MarginRow("velocity", "0.02 %", "", None, 0.00021),
    )
