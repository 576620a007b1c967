"""Certificates that were forged after they were made: none is accepted without being named."""

from dataclasses import replace

import _attacks_verify as attacks
import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.cli import main as door
from sysid_ros.cli import verify
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.certification.conditions import Conditions, compare_conditions, describe_conditions
from sysid_ros.core.certification.ranges import find_out_of_range
from sysid_ros.core.common.box import Box
from sysid_ros.core.regressors.rest_torque import RestTorque, WeighedBox


@pytest.fixture(scope="module")
def arm():
    return load_textbook(attacks.ROBOT)


@pytest.fixture(scope="module")
def plan(arm):
    return attacks.honest_plan(arm)


@pytest.fixture(scope="module")
def forged(plan):
    return attacks.forged_plans(plan)


@pytest.mark.slow
def test_no_forged_certificate_is_accepted_without_being_named(plan, forged, monkeypatch):
    monkeypatch.setattr(verify, "load_robot", load_textbook)
    assert len(forged) >= 70
    assert attacks.accepted(plan, forged, len(forged)) == []


NUMBERS = (
    "no expiry", "issued long ago, for ever", "a margin at no time", "all margins -1", "all margins infinite",
    "a torque bound that is not a number", "takes over at no time", "an infinite brake time", "position bound 0",
)  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_no_proof_gives_are_named(arm, plan, forged, name):
    assert not list(find_out_of_range(arm, plan.certificate))
    assert forged[name] is None or list(find_out_of_range(arm, forged[name].certificate))


def test_every_number_of_a_certificate_has_a_range(arm, plan):
    """A field that is added and forgotten fails here: each is set to what is not a number."""
    for name, value in vars(plan.certificate).items():
        if isinstance(value, float | np.ndarray) and name not in ("expires_at", "issued_at", "nominal_payload"):
            spoilt = replace(plan.certificate, **{name: np.full(np.shape(value), np.nan)[()]})
            assert any(name.replace("_", " ") in text for text in find_out_of_range(arm, spoilt)), name


CONDITIONS = {
    "half an arm box": "lacks up to 25 % of a parameter's range",
    "an arm known exactly": "lacks up to 50 %",
    "a box of nothing in the hand": "payload of 0 to 0 kg",
    "an empty scene": "a scene with no ground",
    "no delay": "delay = 0",
    "half the delay": "delay = 0.0005",
    "a shorter period": "a period of 0.1 ms",
    "lower gains": "bandwidth = 100",
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_boxes_scene_and_law_are_compared_with_those_of_the_arm(arm, plan, forged, name):
    known = Conditions((plan.boxes[1],))
    assert compare_conditions(arm, plan, known) == ([], [])
    problems, _ = compare_conditions(arm, forged[name], known)
    assert any(CONDITIONS[name] in text for text in problems), problems


def test_a_payload_is_compared_with_estimates_where_there_are_any(arm, plan, forged):
    half = forged["half a payload box"]
    problems, notes = compare_conditions(arm, half, Conditions())
    assert not problems and "no estimate is here" in notes[0]
    problems, notes = compare_conditions(arm, half, Conditions((plan.boxes[1], arm.payload_prior.box)))
    assert not notes and "than 2 estimates in the recording allow together" in problems[0]
    narrower = Box(plan.boxes[1].center, plan.boxes[1].upper)
    assert compare_conditions(arm, plan, Conditions((narrower,))) == ([], [])
    assert "kg (" in describe_conditions(arm, plan) and "ground at -0.05 m" in describe_conditions(arm, plan)


def test_the_ground_can_be_asked_for(arm, plan, tmp_path, capsys):
    assert compare_conditions(arm, plan, Conditions((plan.boxes[1],), ground=None)) == ([], [])
    problems, _ = compare_conditions(arm, plan, Conditions((plan.boxes[1],), ground=0.0))
    assert problems == [
        "it is proven for a scene with the ground at -0.05 m, it has to be at 0 m or above; --ground sets the "
        "required ground"
    ]
    assert verify._ground_of("none") is None and verify._ground_of("-0.1") == -0.1
    (tmp_path / "x.mcap").touch()
    assert door.main(["verify", str(tmp_path / "x.mcap"), "--ground", "low"]) == ExitStatus.BAD_INPUT
    assert "--ground [m]" in capsys.readouterr().err


def test_what_was_weighed_must_be_in_an_estimate(arm, plan):
    """Planners cut estimates down to those before; a torque at rest is one that an estimate stated."""
    names, still = arm.joint_names, np.zeros(arm.n)
    box, torque = plan.boxes[1], Box(np.full(arm.n, -1.0), np.full(arm.n, 1.0))
    weighed = WeighedBox.of(box, RestTorque(names, still, torque))
    narrower = WeighedBox.of(box, RestTorque(names, still, Box(0.5 * torque.lower, 0.5 * torque.upper)))
    parts = Box(box.lower, box.upper + 0.1), Box(box.lower - 0.1, box.upper)
    for used, estimates, is_fine in (
        (weighed, (weighed,), True),
        (narrower, (weighed,), False),
        (weighed, (box,), False),
        (box, parts, True),
        (box, parts[:1], False),
    ):
        one = replace(plan, boxes=(plan.boxes[0], used))
        assert (compare_conditions(arm, one, Conditions(estimates))[0] == []) == is_fine
