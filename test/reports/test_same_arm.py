"""The serial number of a calibration is compared with that of the samples that are identified with it."""

import dataclasses
import types

import pytest

from sysid_ros.core.model.calibration import CalibrationRecord
from sysid_ros.core.model.loader import load_robot
from sysid_ros.reports.recordings.known import check_arm
from sysid_ros.reports.recordings.readers import InvalidRecording


def calibrated(serial):
    record = CalibrationRecord(serial=serial, date="2026-11-28")
    return dataclasses.replace(load_robot("kinova_gen3"), calibration=types.SimpleNamespace(record=record))


def test_without_a_calibration_any_arm_will_do():
    assert check_arm(load_robot("kinova_gen3"), "a.mcap", "K7") == []


def test_another_arm_is_refused_and_both_are_named():
    with pytest.raises(InvalidRecording, match="K8.*K7.*calibrate this arm"):
        check_arm(calibrated("K7"), "a.mcap", "K8")
    assert check_arm(calibrated("K7"), "a.mcap", "K7") == []


@pytest.mark.parametrize(("known", "said"), [("K7", ""), ("", "K8"), ("", "")])
def test_what_is_not_known_is_said(known, said):
    (sentence,) = check_arm(calibrated(known), "a.mcap", said)
    assert "not compared" in sentence and known in sentence
