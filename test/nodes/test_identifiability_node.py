"""The identifiability node: reports for the robot description and for the estimator's data, questions, refusals."""

import re

import numpy as np
import pytest
from doubles import make_estimate
from node_bench import Bench
from scara_urdf import ROTORS, SCARA
from std_msgs.msg import String
from textbook import textbook_file

from sysid_msgs.msg import IdentifiabilityReport, ParameterEstimate
from sysid_msgs.srv import AnalyzeIdentifiability
from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.nodes.identifiability import IdentifiabilityNode, main
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import estimate_to_message

NAN = float("nan")


@pytest.fixture(scope="module")
def bench():
    bench = Bench("-p", "data_interval:=0.5")
    bench.run(IdentifiabilityNode())
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def ask(bench):
    def call(**fields):
        request = AnalyzeIdentifiability.Request(**fields)
        return bench.call(AnalyzeIdentifiability, "identifiability/analyze", request)

    return call


@pytest.fixture(scope="module")
def describe(bench):
    publisher = bench.node.create_publisher(String, "robot_description", qos.LATCHED)
    return lambda text: publisher.publish(String(data=text))


@pytest.fixture(scope="module")
def structures(bench):
    return bench.listen(IdentifiabilityReport, "identifiability/structure", qos.LATCHED)


def information(robot, moving, seed=1):
    """Gram matrix (10, 10) of the payload's columns at random states, at rest where nothing is to move."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(-1.5, 1.5, (60, robot.n))
    v, a = (rng.normal(size=q.shape) * np.isin(np.arange(robot.n), moving) for _ in range(2))
    columns = robot.inertial_slice(robot.n)
    rows = TorqueRegressor(robot).evaluate(q, v, a)[..., columns].reshape(-1, 10)
    return rows.T @ rows


def estimate_message(robot, gram, stamp_ns, **changes):
    prior = robot.payload_prior
    box = Box.around(prior.nominal, 0.1 * prior.box.radius).intersect(prior.box)
    bounds = {"values": prior.nominal, "lower": box.lower, "upper": box.upper}
    return estimate_to_message(make_estimate(**{**bounds, **changes}), stamp_ns, gram)


# Before anything is heard: these two come first


def test_without_a_robot_description_the_service_says_so(ask):
    response = ask()
    assert not response.success and "no urdf is given" in response.message
    assert "/robot_description" in response.message and "publishers seen: none" in response.message


def test_without_an_estimate_there_are_no_data(ask):
    response = ask(method=AnalyzeIdentifiability.Request.DATA)
    assert not response.success and "the estimator has published nothing" in response.message


def test_the_structure_follows_the_robot_description_and_is_latched(bench, robot, describe, structures):
    describe(robot.urdf)
    report = structures.wait()
    assert report.method == "structural" and len(report.base_parameters) == 43  # Kinova Gen3, gripper fixed
    assert len(report.names) == len(report.classes) == len(report.combinations) == 70
    assert report.base_names[-1].startswith("joint_7.") and len(report.base_units) == 43
    assert np.isnan(report.condition_number) and not report.singular_values and not report.deviations
    late = bench.listen(IdentifiabilityReport, "identifiability/structure", qos.LATCHED).wait()
    assert late == report or late.base_parameters == report.base_parameters

    count = len(structures.messages)
    describe(SCARA)  # not the robot whose settings the node has: said, not guessed
    refusal = structures.wait(after=count)
    assert not refusal.names and f"with the settings of {textbook_file()}" in refusal.text and "joint_1" in refusal.text
    count = len(structures.messages)
    describe(robot.urdf)
    assert len(structures.wait(after=count).base_parameters) == 43


def test_known_answers_of_a_given_urdf(ask):
    plain, geared = ask(urdf=SCARA), ask(urdf=SCARA, rotors=ROTORS)  # RPNA tables 4 and 5
    assert plain.success and geared.success, (plain.message, geared.message)
    assert (len(plain.report.base_parameters), len(geared.report.base_parameters)) == (8, 11)
    assert plain.message == plain.report.text and "| dim T | 9 | 7 | 9 | 7 |" in plain.markdown


def test_every_field_of_a_question_counts(ask):
    reference = ask(urdf=SCARA)
    changes = {
        "gravity": [0.0, 5.0, -8.0],
        "floating": True,
        "locked": ["j2"],
        "rotors": ROTORS,
        "measured": "base_wrench",
        "static_only": True,
        "joint_parameters": ["F_c", "F_v"],
        "known": ["j4"],
    }
    assert set(changes) | {"method", "urdf", "massless", "tolerance"} == set(
        AnalyzeIdentifiability.Request.get_fields_and_field_types()
    )
    for name, value in changes.items():
        response = ask(urdf=SCARA, **{name: value})
        assert response.success, response.message
        assert response.report.base_parameters != reference.report.base_parameters, name
    hollow = re.sub("<inertial>.*?</inertial>", "", SCARA, count=1)
    assert len(ask(urdf=hollow).report.names) + 10 == len(ask(urdf=hollow, massless="unknown").report.names)
    tilted = SCARA.replace('<origin xyz="0.1 0 0"/>', '<origin xyz="0.1 0 0" rpy="0.02 0 0"/>')
    counts = {t: len(ask(urdf=tilted, tolerance=t).report.base_parameters) for t in (0.0, 0.09)}
    assert counts[0.09] < counts[0.0]


def test_questions_about_the_robot_on_robot_description(ask, robot, describe, structures):
    count = len(structures.messages)
    describe(robot.urdf + "\n")  # so that it is another text, whatever came before
    structures.wait(after=count)
    assert len(ask().report.base_parameters) == 43
    assert len(ask(joint_parameters=["F_c", "F_v"]).report.base_parameters) == 43 + 14
    assert len(ask(gravity=[0.0, 5.0, -8.0]).report.base_parameters) == 45
    refused = ask(locked=["joint_1"])
    assert not refused.success and "only with a URDF" in refused.message


def test_questions_that_cannot_be_answered_are_refused(ask):
    loop = SCARA.replace('<child link="l4"/>', '<child link="l1"/>')
    cases = {
        "method is 7": {"method": 7},
        "gravity [m/s^2]": {"gravity": [1.0, 2.0]},
        "gravity: must be finite": {"gravity": [NAN, 0.0, 0.0]},
        "measured 'feelings'": {"measured": "feelings"},
        "joint_parameters": {"joint_parameters": ["F_x"]},
        "known body 'elbow'": {"known": ["elbow"]},
        "tolerance [-] -1": {"tolerance": -1.0},
        "tolerance [-] nan": {"tolerance": NAN},
        "'elbow'": {"locked": ["elbow"]},
        "no joint of it moves": {"locked": ["j1", "j2", "j3", "j4"]},
        "massless 'yes'": {"massless": "yes"},
        "rotors": {"rotors": "rotors: [1, 2"},
        "gear ratio": {"rotors": "rotors: {j1: {gear_ratio: 0}}"},
        "closes a loop": {"urdf": loop},
        "is not XML": {"urdf": "hello"},
        "axis": {"urdf": SCARA.replace('xyz="0 0 1"', 'xyz="0 0 0"')},
        "urdf, tolerance": {"method": AnalyzeIdentifiability.Request.DATA, "tolerance": 0.1},
    }
    for words, fields in cases.items():
        response = ask(**{"urdf": SCARA, **fields})
        assert not response.success and words in response.message, (words, response.message)
        assert "internal error" not in response.message, response.message
        assert not response.report.names and not response.markdown


def test_what_the_data_know(bench, ask, robot):
    estimates = bench.node.create_publisher(ParameterEstimate, "estimator/estimate", qos.LATCHED)
    reports = bench.listen(IdentifiabilityReport, "identifiability/data", qos.LATCHED)

    def report_on(message):
        count = len(reports.messages)
        estimates.publish(message)
        stamp = message.header.stamp
        return reports.wait(lambda one: one.header.stamp == stamp, after=count)

    resting = report_on(estimate_message(robot, information(robot, []), 1_000_000_000))
    assert resting.method == "data" and resting.header.frame_id == robot.joint_names[-1]
    assert list(np.isfinite(resting.deviations)) == [True] * 4 + [False] * 6  # mass and first moments
    assert resting.determined == 4 and resting.condition_number > 1e3
    assert "6 of 10 combinations" in resting.text and "oving" in resting.text  # with advice
    assert len(resting.lower) == 10 and np.all(np.array(resting.lower) < resting.upper)

    assert not bench.set_parameter("identifiability", advice=False)
    alone = report_on(estimate_message(robot, information(robot, []), 2_000_000_000))
    assert "6 of 10 combinations" in alone.text and "oving" not in alone.text

    gram = information(robot, range(7))
    moving = report_on(estimate_message(robot, gram, 3_000_000_000))
    assert moving.determined > resting.determined and np.all(np.isfinite(moving.deviations))
    assert list(moving.singular_values) == sorted(moving.singular_values, reverse=True)
    answered = ask(method=AnalyzeIdentifiability.Request.DATA)
    assert answered.success and answered.report == moving
    assert "## Expected standard deviations" in answered.markdown

    assert "guaranteed bounds are between" in moving.text and "do not average out" in moving.text

    # Bounds that are not guaranteed, and none at all, are not shown as guaranteed.
    loose = report_on(
        estimate_message(robot, gram, 4_000_000_000, method="left_inverse", guarantee="a hope", is_guaranteed=False)
    )
    assert not loose.lower and not loose.upper and "No guaranteed bounds: a hope" in loose.text
    nothing = dict.fromkeys(("values", "lower", "upper"), np.full(10, NAN))
    changed = Alarm(AlarmCode.JOINTLY_INCONSISTENT, "it was changed")
    alarm = report_on(estimate_message(robot, gram, 5_000_000_000, is_consistent=False, alarm=changed, **nothing))
    assert not alarm.lower and "no payload agrees with the data: it was changed" in alarm.text
    both = report_on(estimate_message(robot, gram, 6_000_000_000, target="end_effector"))
    assert both.prior_deviations[0] > moving.prior_deviations[0]  # the last body is unknown too

    bad = estimate_message(robot, gram, 7_000_000_000)
    bad.information = np.full(100, NAN)
    broken = report_on(bad)
    assert not broken.names and "information" in broken.text


def test_options_make_the_executable_the_command(capsys, tmp_path):
    path = tmp_path / "scara.urdf"
    path.write_text(SCARA)
    assert main(["identifiability", "--urdf", str(path), "--ros-args", "-r", "__ns:=/left"]) == 0
    assert "dim T" in capsys.readouterr().out
    assert main(["identifiability", "--urdf", "/no/such.urdf"]) == 2
