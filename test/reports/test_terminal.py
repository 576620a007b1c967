"""What the terminal shows: in place on a terminal, whole lines on a pipe; the summary at the end."""

import dataclasses
import io
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
from doubles import text_of

from sysid_ros.cli import terminal
from sysid_ros.cli.many_runs import carry_out_runs
from sysid_ros.cli.terminal import (
    WIDTH,
    ProgressDisplay,
    body_summary,
    files_summary,
    hanging,
    interval_bar,
    make_table,
    mass_detail,
    next_step,
    result_summary,
    show,
    working,
)
from sysid_ros.core.estimation.hypotheses import Assumption, Explanation, Hypothesis
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode, Quantity
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS
from sysid_ros.core.estimation.point.statistics import StatisticalInterval
from sysid_ros.reports.limits import CAUSES, SAMPLING, describe_limits
from sysid_ros.reports.payload import summarize_payload
from sysid_ros.reports.result import EstimateHistory
from sysid_ros.reports.writer import WrittenFiles


class _Terminal(io.StringIO):
    def isatty(self):
        return True


class _Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Whatever terminal the tests run in."""
    monkeypatch.setenv("COLUMNS", "120")


def test_a_pipe_gets_one_whole_line_per_change():
    stream, clock = io.StringIO(), _Clock()
    display = ProgressDisplay(stream, clock=clock)
    display.update("planning")
    clock.now += 1.25
    display.update("planning")  # nothing new
    display.update("moving, trajectory 1 of 2", 0.25)
    display.update("moving, trajectory 1 of 2", 0.5, mass_detail((1.0, 1.2, 1.5), (0.0, 2.0)))
    display.update("moving, trajectory 1 of 2", 0.5, mass_detail((1.0, 1.2, 1.5), (0.0, 2.0)))
    display.update("x" * 300, 0.5, mass_detail((1.1, 1.2, 1.3)), left=61.0)
    display.message("y" * 300)
    display.finish()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "[   0.0 s] planning" and lines[1] == "[   1.2 s]  25 %  moving, trajectory 1 of 2"
    assert lines[2].endswith("50 %  moving, trajectory 1 of 2  mass 1.200 kg in [1.000, 1.500]  |          [=*==]    |")
    assert lines[3] == f"[   1.2 s]  50 %  {'x' * 300}  mass 1.200 kg in [1.100, 1.300]  1 min 01 s left"
    assert len(lines) == 5 and lines[4] == "y" * 300
    assert "\x1b" not in stream.getvalue() and "\r" not in stream.getvalue()


def test_a_pipe_hears_of_long_work_that_it_goes_on(monkeypatch):
    monkeypatch.setattr(terminal, "QUIET", 0.05)
    stream = io.StringIO()

    def lines():
        return stream.getvalue().splitlines()

    with ProgressDisplay(stream, _Clock()) as display:
        display.update("planning", 0.1, "mass unknown")
        display.update("planning", 0.2, "mass unknown")
        end = time.monotonic() + 20.0
        while len(lines()) < 3 and time.monotonic() < end:
            time.sleep(0.01)
    said = lines()
    assert said[1:3] == 2 * ["[   0.0 s]  20 %  still planning"]
    time.sleep(0.2)
    assert lines() == said, "nothing goes on after the end"


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_terminal_shows_bar_time_left_and_the_whole_mass_in_its_width(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    stream = _Terminal()
    with ProgressDisplay(stream, _Clock()) as display:
        display.update("planning")
        display.update("x" * 300, 0.4, mass_detail((0.1, 0.2, 0.3)), left=30.0)
        display.message("a warning")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())  # colours
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", plain).splitlines()
    assert max(map(len, lines)) <= min(columns, WIDTH)
    assert any("\u2026" in line and "40%" in line and "30 s left" in line for line in lines)
    assert any(line == "mass 0.200 kg in [0.100, 0.300]" for line in map(str.rstrip, lines))
    assert any(line.rstrip() == "a warning" for line in lines)


def test_the_bar_does_not_stand_at_its_end_while_work_goes_on_that_nobody_measures(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with ProgressDisplay(_Terminal(), _Clock()) as display:
        display.update("reading", 1.0)
        display.update("writing the files")
        (task,) = display._live.tasks
        assert task.total is None and task.percentage == 0.0
        display.update("reading another", 0.5)
        assert task.total == 1.0 and task.percentage == 50.0 and not task.finished


def test_what_limits_the_bounds_is_told_with_what_to_change(result):
    """Terms with one cure count together, and what was known before the data does not count."""
    names = ("quadrature", "jitter", "velocity", "robot_friction", "encoder", "torque_lag", "prior")
    shares = (2.0, 2.0, 2.0, 1.0, 0.5, 0.1, 100.0)
    budget = {name: np.full(10, share) for name, share in zip(names, shares, strict=True)}
    limited = dataclasses.replace(result, estimate=dataclasses.replace(result.estimate, error_budget=budget))
    texts = describe_limits(limited)
    assert [text.split(":")[0] for text in texts[:3]] == [
        "53 % what lies between two samples",
        "33 % positions and velocities",
        "13 % friction and torque offsets of the arm",
    ], "no part of the mass, as most of its width was there before"
    rate = round(1e9 / np.median(np.diff(result.samples.stamps)), 1)
    faster = f"sample faster than {rate:g} Hz; slower motion loses less between samples, but shows inertias less"
    assert texts[0].endswith(faster)
    assert "with the empty hand" in texts[2] and "`sysid calibrate arm`" in texts[2]
    lines = text_of(result_summary(limited)).splitlines()
    assert any(line.startswith("What limits the bounds: 53 % what lies") for line in lines)
    assert max(map(len, lines)) <= WIDTH
    nothing = dataclasses.replace(result.estimate, error_budget={"prior": np.ones(10)})
    assert describe_limits(dataclasses.replace(result, estimate=nothing)) == []
    known = {term for cause in CAUSES for term in cause.terms}
    assert known >= {*ERROR_TERMS, "robot_inertia", "robot_friction", "torque_gain"} - {"rounding"}


@pytest.mark.parametrize(
    ("early", "says"), [(0.101, "longer recordings will hardly help"), (0.2, "recording longer helps")]
)
def test_whether_recording_longer_would_help_is_what_its_second_half_did(result, early, says):
    end = float(result.samples.seconds[-1])
    upper = np.outer([0.4, early, 0.1], np.ones(10))
    history = EstimateHistory(np.array([0.2, 0.5, 1.0]) * end, 0.0 * upper, -upper, upper, np.ones(3))
    told = describe_limits(dataclasses.replace(result, history=history))[-1]
    assert (
        told == f"{0.5 * end:.2g} s gave +-{early:.3g} kg, {end:.2g} s gave +-0.1 kg: {says}, with motions like these"
    )
    late = dataclasses.replace(history, time=np.array([0.7, 0.8, 1.0]) * end)
    assert not any("motions like these" in text for text in describe_limits(dataclasses.replace(result, history=late)))


def test_what_limits_the_mass_counts_until_it_is_known_and_a_cure_is_told_once(result):
    """The inertias of the payload have six of ten parameters, and say little about what people want first."""
    budget = {"robot_inertia": np.full(10, 0.1), "robot_friction": np.full(10, 0.1), "velocity": np.full(10, 10.0)}
    for share in budget.values():
        share[0] = 1.0
    budget["robot_inertia"][0], budget["velocity"][0] = 3.0, 0.5
    wide = dataclasses.replace(result.estimate, error_budget=budget, upper=result.estimate.upper + 2.0 * np.eye(10)[0])
    texts = describe_limits(dataclasses.replace(result, estimate=wide))
    assert texts[0].startswith("67 % inertias of the arm (3 kg of the mass): calibrate it (`sysid calibrate arm` with")
    assert texts[1].startswith("22 % friction") and texts[1].endswith(": the same helps")
    calibrated = dataclasses.replace(result.robot, calibration=object())
    again = describe_limits(dataclasses.replace(result, estimate=wide, robot=calibrated))
    assert ": what its calibration leaves: recordings of more motions" in again[0] and "calibrate it" not in again[0]
    assert again[1].endswith(": the same helps"), "of one advice"
    gain = dataclasses.replace(wide, error_budget={"torque_gain": np.full(10, 0.1), "velocity": np.full(10, 0.25)})
    (told,) = (text for text in describe_limits(dataclasses.replace(result, estimate=gain)) if "gains" in text)
    assert told.startswith(
        "29 % gains of the torque sensors (0.1 kg of the mass): a reference weight, once, shows them"
    )
    assert told.endswith(": about +-0.25 kg would be left")
    known = dataclasses.replace(result, estimate=dataclasses.replace(result.estimate, error_budget=budget))
    assert describe_limits(known)[0].startswith("89 % positions and velocities (0.5 kg of the mass)")


@pytest.mark.parametrize(
    ("interval", "picture"),
    [
        ((0.0, 5.0, 10.0), "|[====*===]|"),
        ((2.0, 3.5, 5.9), "|  [*=]    |"),
        ((4.1, 4.2, 4.3), "|    *     |"),
        ((-3.0, 4.5, 99.0), "|[===*====]|"),
        ((np.nan, np.nan, np.nan), "|          |"),
    ],
)
def test_interval_bar(interval, picture):
    assert interval_bar(*interval, 0.0, 10.0, size=10) == picture


def test_the_summary_begins_with_mass_and_com(result):
    lines = text_of(result_summary(result)).splitlines()
    assert max(map(len, lines)) <= WIDTH and all(line == line.rstrip() for line in lines)
    mass, com_z = result.estimate.values[0], summarize_payload(result, "end_effector_link").com.values[2]
    assert 1.765 < mass < 1.860
    assert lines[0] == f"Payload  {mass:.2f} kg   guaranteed 1.765 to 1.860"
    assert re.fullmatch(r"CoM      -?\d+, -?\d+, \d+ mm   guaranteed x .* to .*, y .* to .*, z .* to .*", lines[1])
    assert lines[2].startswith("Good for: ")
    first = lines.index(f"In the tool frame ({result.robot.tool_frame})") + 1
    assert lines[first].split() == ["unit", "estimate", "lower", "upper"]
    assert lines[first + 1].split() == ["mass", "kg", f"{mass:.6f}", "1.765000", "1.859500"]
    assert [line.split()[:2] for line in lines[first + 2 : first + 5]] == [["CoM", axis] for axis in "xyz"]
    assert lines[first + 4].split()[2:4] == ["m", f"{com_z:.6f}"]
    assert sum(line.startswith("principal moment") for line in lines[first + 5 : first + 8]) == 3
    head = next(k for k, line in enumerate(lines) if line.startswith("About the frame of the last joint (joint_7)"))
    assert lines[head + 1].split() == ["unit", "estimate", "lower", "upper", "narrower", "truth", "inside"]
    row = lines[head + 2].split()
    assert row[:5] == ["m", "kg", f"{mass:.6f}", "1.765000", "1.859500"] and row[-2:] == ["1.810000", "yes"]
    assert sum(line.endswith(" yes") for line in lines) == 10
    assert "Truth (simulation) inside the bounds: 10 of 10" in lines
    assert lines[-1] == "warning: the certificate was checked at sampled instants only"


def test_a_quantity_that_is_no_better_known_than_before_has_bounds_only(result):
    """Its number would be any point of the prior, mostly on its edge."""
    weighed = dataclasses.replace(result.estimate, narrower=frozenset({Quantity.MASS}))
    lines = text_of(result_summary(dataclasses.replace(result, estimate=weighed))).splitlines()
    assert lines[1].startswith("CoM      not known   guaranteed x ")
    first = next(k for k, line in enumerate(lines) if line.startswith("mass "))
    assert lines[first].split()[2] != "not"
    assert all(line.split()[2:5] == ["m", "not", "known"] for line in lines[first + 1 : first + 4])
    moments = [line for line in lines if line.startswith("principal moment")]
    assert len(moments) == 3 and all("not known" in line for line in moments)
    assert "not known" not in text_of(result_summary(result))


def test_summary_without_truth_and_with_a_wrong_one(result):
    text = text_of(result_summary(dataclasses.replace(result, truth=None)))
    assert "truth" not in text.replace("true", "").lower().split("bounds:")[0] and " inside\n" not in text
    wrong = text_of(result_summary(dataclasses.replace(result, truth=result.truth + np.eye(10)[3])))
    assert any(line.startswith("mcz") and line.endswith(" NO") for line in wrong.splitlines())
    assert "inside the bounds: 9 of 10" in wrong


def test_what_is_likely_stands_before_what_is_guaranteed(result):
    assert "ikely" not in text_of(result_summary(result))
    interval = StatisticalInterval(np.full(10, 1.7804), np.full(10, 1.8196))
    first = text_of(result_summary(dataclasses.replace(result, statistical=interval))).splitlines()[0]
    assert re.fullmatch(r"Payload  1\.\d\d kg   likely 1\.780 to 1\.820 \(95 %\)   guaranteed 1\.765 to 1\.860", first)
    nothing = StatisticalInterval(np.full(10, np.nan), np.full(10, np.nan))
    text = " ".join(text_of(result_summary(dataclasses.replace(result, statistical=nothing))).split())
    assert "Likely: none of m, mcx" in text and "nan" not in text


def test_what_a_load_is_good_for_follows_from_its_bounds(result):
    wide = dataclasses.replace(result.estimate, upper=result.estimate.upper + np.eye(10)[0])
    text = " ".join(text_of(result_summary(dataclasses.replace(result, estimate=wide))).split())
    assert "Good for: motion that is planned and certified with these bounds; not for the payload setting" in text
    assert "for which mass" in text and "well known: mass within 10 % or 50 g" in text


def test_a_pipe_gets_sentences_in_one_line(result):
    stream = io.StringIO()
    show(result_summary(result), stream=stream)
    lines = stream.getvalue().splitlines()
    told = "guaranteed as long as the assumptions hold that estimate.yaml and the report list"
    assert f"Bounds: {told} ({result.estimate.method})" in map(str.rstrip, lines)
    assert "\x1b" not in stream.getvalue()


def test_nobody_is_told_to_move_faster_where_the_sampling_limits(result, monkeypatch):
    nothing = dataclasses.replace(result, estimate=dataclasses.replace(result.estimate, narrower=frozenset()))
    assert "more joints, faster or for longer" in next_step(nothing) and not nothing.is_identified
    monkeypatch.setattr("sysid_ros.cli.terminal.find_limits", lambda _: [(SAMPLING, 0.6)])
    assert "move more joints, for longer, and identify again" in next_step(nothing)


def test_files_and_the_next_step_come_last(result, tmp_path):
    written = WrittenFiles(tmp_path, ("report.html",), ("payload.sdf was not written: why",))
    lines = text_of(files_summary(result, written), width=10_000).splitlines()
    assert lines[0] == "note: payload.sdf was not written: why" and lines[1] == f"Files: {tmp_path}"
    assert lines[2].startswith(f"Next: open {tmp_path}/report.html in a browser; payload_* are for controllers")
    upper = result.estimate.upper + np.eye(10)[0]
    heavy = dataclasses.replace(result, estimate=dataclasses.replace(result.estimate, upper=upper))
    assert "change what limits the bounds, for mass and centre of mass as controllers need them" in next_step(heavy)
    unknown = dataclasses.replace(result, estimate=dataclasses.replace(result.estimate, narrower=frozenset()))
    assert f"sysid identifiability --model {result.robot.name}" in next_step(unknown)


def test_an_alarm_is_not_a_table_and_explains_itself(result):
    nothing = np.full(10, np.nan)
    estimate = dataclasses.replace(
        result.estimate, values=nothing, lower=nothing, upper=nothing, is_consistent=False,
        alarm=Alarm(AlarmCode.WINDOW_INCONSISTENT, "no payload is consistent: " + "joint_2 is off; " * 16),
    )  # fmt: skip
    wrong_sign = Hypothesis(Assumption.EFFORT_SIGN, "joint_2", 1.0, 1.0, "", 0.1, 1.0)
    explanation = Explanation(3.0, (wrong_sign,) * 6, 10)
    result = dataclasses.replace(result, estimate=estimate, explanation=explanation)
    lines = text_of(result_summary(result)).splitlines()
    assert lines[0] == "ALARM: no usable estimate for kinova_gen3_2f85"
    assert "nan" not in "\n".join(lines) and max(map(len, lines)) <= WIDTH
    assert sum("the sign of the efforts of joint_2 were turned round" in line for line in lines) == 4
    assert any(line.startswith("   check: hold the arm still") for line in lines)
    assert next_step(result).startswith("try the first check above")


def test_markup_and_escapes_in_names_are_only_text():
    assert text_of(make_table(("a",), [("[bold]x[/bold]",)]), hanging("[b] ", "[red]y")).splitlines() == [
        "a",
        "[bold]x[/bold]",
        "[b] [red]y",
    ]


def test_work_without_an_end_is_told_at_a_terminal_alone(capfd, monkeypatch):
    with working("reading [bold]"):
        print("a result")
    told = capfd.readouterr()
    assert (told.out, told.err) == ("a result\n", "")


def test_runs_that_are_stopped_are_kept_and_counted(tmp_path, capsys):
    def work(number):
        if number == 2:
            raise KeyboardInterrupt
        return number

    jobs = [{"number": number} for number in range(4)]
    for expected in ("stopped: 2 of 4 runs", "stopped: 2 of 4 runs"):
        with pytest.raises(KeyboardInterrupt):
            carry_out_runs(work, jobs, tmp_path / "runs.jsonl", (1, ""))
        told = capsys.readouterr().err
        assert (
            f"{expected} are in {tmp_path}/runs.jsonl; the same command goes on" in told and "50 %  2 of 4 runs" in told
        )
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 2


def test_tables_of_other_bodies_are_never_cut(result):
    estimate = dataclasses.replace(result.estimate, combinations=None)
    target = SimpleNamespace(label="object on joint_4", frame="joint_4", body=4, prior=result.prior)
    lines = text_of(body_summary(target, estimate)).splitlines()
    assert lines[0] == "object on joint_4, about the frame of joint_4" and max(map(len, lines)) <= WIDTH
    assert lines[2].split() == ["parameter", "unit", "estimate", "lower", "upper", "narrower"]
    assert len(lines[3:13]) == 10 and all(line.endswith("x") for line in lines[3:13])
