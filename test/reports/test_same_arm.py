"""The serial number of a calibration is compared with that of the arm, before anything is computed or moved with it."""

import dataclasses
import types

import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.calibrated import describe_unknown_arm, require_same_arm
from sysid_ros.core.model.calibration import CalibrationRecord
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.registry import LoopSetup, build_loop


def calibrated(serial):
    record = CalibrationRecord(serial=serial, date="2026-11-28")
    return dataclasses.replace(load_robot("kinova_gen3"), calibration=types.SimpleNamespace(record=record))


def test_without_a_calibration_any_arm_will_do():
    require_same_arm(load_robot("kinova_gen3"), "K8")
    assert describe_unknown_arm(load_robot("kinova_gen3"), "") == []


def test_another_arm_is_refused_and_both_are_named():
    with pytest.raises(ParameterOutOfRange, match="the arm in a.mcap is 'K8'; allowed: K7, .*--serial K8"):
        require_same_arm(calibrated("K7"), "K8", "a.mcap")
    require_same_arm(calibrated("K7"), "K7")
    assert describe_unknown_arm(calibrated("K7"), "K7") == []


@pytest.mark.parametrize(("known", "said"), [("K7", ""), ("", "K8"), ("", "")])
def test_what_is_not_known_is_said(known, said):
    require_same_arm(calibrated(known), said)
    (sentence,) = describe_unknown_arm(calibrated(known), said)
    assert "not compared" in sentence and known in sentence


def test_a_driver_takes_no_other_arm_over():
    setup = dataclasses.replace(LoopSetup.mock("kinova_gen3"), serial_number="K8")
    with pytest.raises(ParameterOutOfRange, match="'K8'; allowed: K7"):
        setup.build_arm(calibrated("K7"))
    assert setup.build_arm(calibrated("K8")).serial_number == build_loop(setup).status().serial_number == "K8"
