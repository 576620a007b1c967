"""What the terminal shows: in place on a terminal, line by line on a pipe; the table at the end."""

import dataclasses
import io

import numpy as np
import pytest

from sysid_ros.cli.terminal import PROGRESS_WIDTH, WIDTH, ProgressDisplay, interval_bar, result_table
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode


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


def test_a_pipe_gets_one_line_per_change():
    stream, clock = io.StringIO(), _Clock()
    display = ProgressDisplay(stream, prior_mass=(0.0, 2.0), clock=clock)
    display.update("planning")
    clock.now += 1.25
    display.update("planning")  # nothing new
    display.update("moving", 1, 2)
    display.update("moving", 1, 2, (1.0, 1.2, 1.5))
    display.update("moving", 1, 2, (1.0, 1.2, 1.5))
    display.update("moving", 1, 2, (1.1, 1.2, 1.3))
    display.message("done")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "[   0.0 s] planning"
    assert lines[1] == "[   1.2 s] moving                trajectory 1/2"
    assert lines[2].endswith("trajectory 1/2    mass 1.200 kg in [1.000, 1.500]  |          [=*==]    |")
    assert len(lines) == 5 and lines[4] == "done" and "\x1b" not in stream.getvalue() and "\r" not in stream.getvalue()


def test_a_terminal_line_is_rewritten_in_place():
    stream = _Terminal()
    display = ProgressDisplay(stream, clock=_Clock())
    display.update("planning")
    display.update("moving", 3, mass=(1.0, 1.2, 1.5))
    display.message("a warning")
    display.finish()
    text = stream.getvalue()
    assert text.count("\r\x1b[2K") == 2 and text.endswith(
        "trajectory 3      mass 1.200 kg in [1.000, 1.500]\na warning\n"
    )
    assert text.count("\n") == 2


def test_long_text_never_wraps():
    stream = _Terminal()
    ProgressDisplay(stream, (0.0, 1.0), _Clock()).update("x" * 300, 12, 20, (0.1, 0.2, 0.3))
    line = stream.getvalue().replace("\r\x1b[2K", "")
    assert len(line) <= PROGRESS_WIDTH and line.endswith("mass 0.200 kg in [0.100, 0.300]")


@pytest.mark.parametrize("columns", [72, 80, 100, 140])
def test_a_narrow_terminal_gets_the_whole_mass(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = _Terminal()
    ProgressDisplay(stream, (0.0, 1.0), _Clock()).update("writing the results", 12, 20, (0.1, 0.2, 0.3))
    line = stream.getvalue().replace("\r\x1b[2K", "")
    assert len(line) < columns and "mass 0.200 kg in [0.100, 0.300]" in line and line.count("|") in (0, 2)


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


def test_table_in_simulation(result):
    lines = result_table(result).splitlines()
    assert max(map(len, lines)) <= WIDTH and all(line == line.rstrip() for line in lines)
    assert lines[0] == "Payload of kinova_gen3_2f85, about the frame of the last joint (joint_7)"
    assert lines[2].split() == [
        "unit",
        "estimate",
        "lower",
        "upper",
        "width",
        "shrunk",
        "truth",
        "inside",
    ]
    mass = next(line for line in lines if line.startswith("m  "))
    assert mass.split()[:5] == ["m", "kg", "1.800000", "1.765000", "1.859500"]
    assert mass.split()[-2:] == ["1.810000", "yes"]
    assert sum(line.endswith(" yes") for line in lines) == 10
    assert any(line.startswith("com z               m          0.128975") for line in lines)
    assert any(line.startswith("principal moment 3  kg m^2") for line in lines)
    assert "Truth (simulation) inside the bounds: 10 of 10" in lines
    assert lines[-1] == "warning: the certificate was checked at sampled instants only"


def test_table_without_truth_and_with_a_wrong_one(result):
    table = result_table(dataclasses.replace(result, truth=None))
    assert "truth" not in table.lower() and "inside" not in table.splitlines()[2]
    wrong = result_table(dataclasses.replace(result, truth=result.truth + np.eye(10)[3]))
    assert any(line.startswith("mcz") and line.endswith(" NO") for line in wrong.splitlines())
    assert "inside the bounds: 9 of 10" in wrong


def test_an_alarm_is_not_a_table(result):
    nothing = np.full(10, np.nan)
    estimate = dataclasses.replace(
        result.estimate, values=nothing, lower=nothing, upper=nothing, is_consistent=False,
        alarm=Alarm(AlarmCode.WINDOW_INCONSISTENT, "no payload is consistent: " + "joint_2 is off; " * 16),
    )  # fmt: skip
    lines = result_table(dataclasses.replace(result, estimate=estimate)).splitlines()
    assert lines[0] == "ALARM: no usable estimate for kinova_gen3_2f85"
    assert "nan" not in "\n".join(lines) and max(map(len, lines)) <= WIDTH
