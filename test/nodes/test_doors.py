"""Attacks on what certificates rest on: each of ``bench/_attacks_doors.py`` is refused, and what is honest is not."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from textbook import textbook_file

from sysid_msgs.msg import ParameterEstimate, SampleBatch
from sysid_msgs.srv import ApplyEstimate, ExecuteTrajectory
from sysid_ros.core.certification.authentication import KEY_FILE_VARIABLE, AuthenticationKey, NotAuthentic
from sysid_ros.drivers.loop_types import RefusalCode
from sysid_ros.ros.conversions.authentication import is_genuine, require_authentic, sign

_SPEC = importlib.util.spec_from_file_location(
    "attacks_doors", Path(__file__).parents[2] / "bench" / "_attacks_doors.py"
)
doors = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(doors)
doors.MODEL = textbook_file()


@pytest.fixture(scope="module")
def rig():
    return doors.Rig()


@pytest.mark.parametrize("name", doors.ESTIMATES)
def test_a_forged_or_replayed_estimate_gets_no_model_and_no_plan(rig, name):
    rig.epochs._first_epoch, rig.epochs._starts = doors.EPOCH, [0]
    rig.say_status()
    honest = rig.estimate(1.81)
    assert rig.is_planned(honest) and rig.is_taken(honest)
    forged = doors.ESTIMATES[name](rig, honest, np.random.default_rng(1))
    assert not rig.is_taken(forged)
    # The planner believes the status, which nobody signs, that it heard last: a later payload is for the driver to see.
    assert not rig.is_planned(forged) or name == "authentic, of a payload to come"


def test_refusals_have_numbers_and_say_what_is_wrong(rig):
    rig.say_status()
    cases = {
        "has no authentication code": (rig.estimate(0.05, key=None), RefusalCode.NOT_AUTHENTIC),
        "is not of this key": (rig.estimate(0.05, key=doors.OTHER_KEY), RefusalCode.NOT_AUTHENTIC),
    }
    old = rig.estimate(0.05, key=None)
    old.payload_epoch += 1
    sign(old, doors.KEY)
    cases["is of payload number"] = (old, RefusalCode.REPLAYED)
    for words, (estimate, code) in cases.items():
        answer = rig.commands.set_model(ApplyEstimate.Request(estimate=estimate), ApplyEstimate.Response())
        assert not answer.success and words in answer.message
        with pytest.raises(NotAuthentic, match=words) as caught:
            rig.commands._model_of(ExecuteTrajectory.Request(estimate=estimate))
        refused = rig.commands._refuse(ExecuteTrajectory.Response(), caught.value)
        assert refused.code == code and words in refused.message


def test_the_prior_needs_nobodys_word_and_begins_another_payload(rig):
    before, old = rig.epochs.present, rig.estimate(1.81)
    answer = rig.commands.set_model(ApplyEstimate.Request(), ApplyEstimate.Response())
    assert answer.success and rig.epochs.present == answer.payload_epoch == before + 1
    rig.say_status()
    assert not rig.is_planned(old) and not rig.is_taken(old) and rig.is_planned(ParameterEstimate())
    assert rig.is_taken(rig.estimate(1.81))


def test_without_a_key_estimates_count_as_configured():
    rig = doors.Rig(key=None)
    anybodys = rig.estimate(0.05, key=None)
    assert rig.is_planned(anybodys) and rig.is_taken(anybodys)


@pytest.mark.parametrize("kind", [ParameterEstimate, SampleBatch])
def test_every_field_of_what_is_signed_counts(kind):
    values = {"double": 1.0, "boolean": True, "string": "x"}

    def changed(message, name, field):
        base = field.removeprefix("sequence<").removesuffix(">").partition("[")[0]
        if name == "header":
            message.header.stamp.nanosec += 1
        elif base == field:
            setattr(message, name, values.get(base, 1))
        else:
            count = len(getattr(message, name)) or 1
            setattr(message, name, [*list(getattr(message, name))[: count - 1], values.get(base, 1)])
        return message

    fields = kind.get_fields_and_field_types()
    for name, field in fields.items():
        message = kind()
        sign(message, doors.KEY)
        assert is_genuine(message, doors.KEY)
        if name == "authentication":
            continue
        assert not is_genuine(changed(message, name, field), doors.KEY), name
    message = kind()
    sign(message, doors.KEY)
    assert not is_genuine(message, AuthenticationKey(b"y" * 32))


def test_a_code_of_one_kind_of_message_is_none_of_another():
    assert doors.KEY.code("SampleBatch", b"") != doors.KEY.code("ParameterEstimate", b"")


def test_nothing_is_of_no_session():
    estimate = ParameterEstimate()
    sign(estimate, doors.KEY)
    with pytest.raises(NotAuthentic, match="session"):
        require_authentic(estimate, doors.KEY, "", 0)


@pytest.mark.parametrize("name", doors.SCENES)
def test_a_scene_that_lacks_what_is_configured_is_refused(rig, name):
    required = rig.store.scene
    path = doors.BezierTrajectory(rig.robot.home, np.zeros(7), np.zeros(7), rig.robot.home + 0.05, 3.0)
    smaller = doors.SCENES[name](required)
    text = rig.why_refused(rig.certify(path, smaller), smaller)
    assert text is not None and "lacks what this driver is configured to demand" in text
    assert rig.why_refused(rig.certify(path, required), required) is None


def test_children_of_the_driver_do_not_inherit_the_key(monkeypatch):
    monkeypatch.setenv(KEY_FILE_VARIABLE, "/nowhere/key")
    assert [row["failed"] for row in doors.attack_key(1)] == [0, 0]
