"""Tables as users have them: columns of any order and spelling, and what is asked for where names are not enough."""

import numpy as np
import pytest
from recording_files import write_csv

from sysid_ros.core.model.loader import load_robot
from sysid_ros.reports.recordings.columns import find_columns
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.options import InvalidRecording, ReadOptions

SEVEN = [f"joint_{k}" for k in range(1, 8)]


def _names(time, pattern, words=("position", "velocity", "effort"), joints=SEVEN):
    return [time, *(pattern.format(word=word, joint=joint, k=k) for word in words for k, joint in enumerate(joints))]


FORMS = {
    "words before joints": _names("time", "{word}_{joint}"),
    "PlotJuggler": _names("__time", "/joint_states/{joint}/{word}"),
    "PlotJuggler, older": _names("__time", "/joint_states/{word}/{joint}"),
    "words behind joints": _names("timestamp", "{joint}.{word}"),
    "units": [name + unit for name, unit in zip(
        _names("Time", "{joint} {word}"), [" [s]", *[" (rad)"] * 7, *[" [rad/s]"] * 7, *[" [Nm]"] * 7], strict=True
    )],
    "numbers of the joints": _names("t", "{word}[{joint}]", joints=range(1, 8)),
    "letters": _names("t", "{word}{joint}", ("q", "dq", "tau_J"), range(1, 8)),
    "measured, not desired": [
        name.replace("joint_", "actual/joint_")
        for name in _names("t", "/jtc/{joint}/{word}s", ("position", "speed", "torque"))
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_ordinary_tables_are_read_by_the_names_of_their_columns(form, robot, short, tmp_path):
    names = [name.replace(",", "") for name in FORMS[form]]
    path = write_csv(tmp_path / "a.csv", robot, short, header=[], names=names)
    # Stamps of the test are in ns; what is stated counts more than a name.
    recording = read_recording(path, robot, ReadOptions(units={"t": "ns"}))
    for name in ("stamps", "q", "v", "tau"):
        assert np.array_equal(getattr(recording.samples, name), getattr(short, name)), name
    taken = [text for text in recording.notices if "units are not stated" in text]
    assert len(taken) == (form != "units") and recording.caveats == ()


def test_semicolons_decimal_commas_texts_and_other_columns(robot, short, tmp_path):
    names = ["frame", "sec", "nanosec", "q_d_1", *_names("t", "{joint}/{word}")[1:], "finger/position", "note"]
    lines = [";".join(names)]
    for k, stamp in enumerate(short.stamps):
        numbers = np.concatenate([short.q[k], short.v[k], short.tau[k], [0.04]])
        text = ";".join(repr(float(number)).replace(".", ",") for number in numbers)
        lines.append(f"base;{stamp // 10**9};{stamp % 10**9};7,5;{text};moving")
    (tmp_path / "a.csv").write_text("﻿" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    recording = read_recording(tmp_path / "a.csv", robot)
    assert np.array_equal(recording.samples.stamps, short.stamps) and np.array_equal(recording.samples.tau, short.tau)


def test_names_may_be_a_comment_as_numpy_writes_them(robot, short, tmp_path):
    rows = np.column_stack([1e-9 * (short.stamps - short.stamps[0]), short.q, short.v, short.tau])
    np.savetxt(tmp_path / "a.csv", rows, header=" ".join(_names("t", "{word}_{joint}")))
    recording = read_recording(tmp_path / "a.csv", robot)
    np.testing.assert_allclose(recording.samples.q, short.q)
    np.savetxt(tmp_path / "b.csv", rows)
    with pytest.raises(
        InvalidRecording, match="the line of column names is missing; line 1 has numbers only; expected "
    ):
        read_recording(tmp_path / "b.csv", robot)


def test_signs_gaps_and_the_last_line_are_as_in_bags(robot, short, tmp_path):
    def edit(text):
        lines = text.splitlines()
        lines[5] = lines[5].rpartition(",")[0] + ","  # an empty cell
        lines[9] = lines[9].rpartition(",")[0] + ",nan"
        return "\n".join(lines)  # the last line has no end: nobody knows whether its number does

    path = write_csv(tmp_path / "a.csv", robot, short, header=[], edit=edit)
    options = ReadOptions(units={"t": "ns"})
    recording = read_recording(path, robot, options)
    text = " ".join(recording.notices)
    assert len(recording.samples) == 297 and "2 samples left out in which a number is missing" in text
    assert "line 302, the last, has no end and was left out" in text and "2 gaps in the samples" in text
    turned = short.__class__(short.stamps, short.sequence, short.q, short.v, -short.tau)
    recording = read_recording(write_csv(tmp_path / "b.csv", robot, turned, header=[]), robot, options)
    assert np.array_equal(recording.samples.tau, short.tau)
    assert any("against the joint direction" in text for text in recording.notices)


def test_units_on_the_command_line_count_for_tables(robot, short, tmp_path):
    degrees = short.__class__(short.stamps, short.sequence, np.degrees(short.q), short.v, short.tau)
    path = write_csv(tmp_path / "a.csv", robot, degrees)
    with pytest.raises(InvalidRecording, match="say --units 'q=deg'"):
        read_recording(path, robot)
    found = read_recording(path, robot, ReadOptions(units={"q": "deg"})).samples
    np.testing.assert_allclose(found.q, short.q, rtol=1e-12)


OPEN = {
    "no time": (["q_joint_1"], "column 't' is missing; expected one named t, stamp, .*; the file has q_joint_1"),
    "two times": (["a/time", "b/time"], "the column of the time is one of a/time, b/time; expected one"),
    "two topics": (
        [*_names("t", "/left/{word}/{joint}"), *_names("t", "/right/{word}/{joint}")[1:]],
        r"column 'q_joint_1' is there more than once \(/left/position/joint_1, /right/position/joint_1\); .*--topic",
    ),
    "other joints": (
        _names("t", "{word}_a{k}"),
        "without joint_1, .*; the file has a0, a1.* NAME=JOINT, in this order --map a0=joint_1 --map a1=",
    ),
    "no torques": (_names("t", "{word}_{joint}", ("position", "amps")), "column 'tau_joint_1' is missing; .*has t"),
    "a unit": (["t [h]", *_names("t", "{word}_{joint}")[1:]], r"unit of column 't \[h\]' is 'h'; expected s or ms"),
    "two units": (
        [f"{name} [{'deg' if name == 'position_joint_2' else 'rad'}]" if "pos" in name else name
         for name in _names("t", "{word}_{joint}")],
        "the unit of q is deg and rad; expected one for all joints",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OPEN)
def test_what_names_leave_open_is_asked_for(case, robot, tmp_path):
    names, message = OPEN[case]
    with pytest.raises(InvalidRecording, match=message):
        find_columns(tmp_path / "a.csv", names, robot, ReadOptions())


def test_topics_and_given_names_settle_what_is_open(robot, tmp_path):
    both = [*_names("t", "/left/{word}/{joint}"), *_names("t", "/right/{word}/{joint}")[1:]]
    assert find_columns(tmp_path, both, robot, ReadOptions(topics=("/right",))).joints["tau"] == tuple(range(36, 43))
    given = ReadOptions(joint_names={str(k): name for k, name in enumerate(robot.joint_names)})
    counted = _names("t", "{word}_{k}")
    assert find_columns(tmp_path, counted, robot, given).joints["q"] == tuple(range(1, 8))
    arm = load_robot("ur5e")
    counted = ["timestamp", *(f"actual_q_{k}" for k in range(6)), *(f"target_q_{k}" for k in range(6))]
    counted += [f"actual_torque_{k}" for k in range(6)]
    found = find_columns(tmp_path, counted, arm, ReadOptions())
    assert found.joints["q"] == tuple(range(1, 7)) and "joints 0 to 5 are taken to be shoulder_pan" in found.notices[0]
    with pytest.raises(InvalidRecording, match="--map 7=shoulder_pan_joint --map 1=shoulder_lift_joint"):
        find_columns(tmp_path, [name.replace("_0", "_7") for name in counted], arm, ReadOptions())
