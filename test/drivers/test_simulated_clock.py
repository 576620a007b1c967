"""Simulated time slows down where the machine cannot keep up, says so once, and takes no priority over its planner."""

import os
import signal
import subprocess
import sys
import time

import pytest
from driver_doubles import build_loop

from sysid_ros.drivers import pacing
from sysid_ros.drivers.pacing import Pacer, SimulatedClock
from sysid_ros.drivers.process import LoopProcess


class Time:
    """The monotonic clock, moved by the test."""

    def __init__(self, monkeypatch):
        self.now_ns = 10**12
        monkeypatch.setattr(pacing.time, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(pacing.time, "monotonic", lambda: 1e-9 * self.now_ns)
        monkeypatch.setattr(pacing.time, "sleep", self.sleep)

    def sleep(self, seconds):
        self.now_ns += round(1e9 * seconds)


@pytest.fixture
def clock(monkeypatch):
    return Time(monkeypatch)


def test_cycles_that_were_missed_are_left_out(clock):
    """Three cycles of computing time 25 ms in periods of 10 ms: none follows at once."""
    pacer, lateness = Pacer(0.01, is_exact=False), []
    for _ in range(3):
        lateness.append(pacer.wait())
        clock.sleep(0.025)
    assert lateness == pytest.approx([0.0, 0.015, 0.015])
    for _ in range(5):
        pacer.wait()
    assert pacer.wait() == 0.0


def test_slow_time_is_told_once_with_numbers(clock, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (40.0, 1.0, 1.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    said, simulated = [], 7.0
    watch = SimulatedClock(said.append)
    for speed in (1.0, 1.0, 0.6, 0.5):
        for _ in range(700):
            watch.note(simulated)
            clock.sleep(0.01)
            simulated += 0.01 * speed
    (text,) = said  # of the first window that was slow, a mixed one
    assert text.startswith("this machine is busy: load 40 on 2 cores; the simulated arm runs at 0.")
    assert watch.speed == pytest.approx(0.52, abs=0.01)


def test_half_speed_that_was_asked_for_is_not_slow(clock):
    said = []
    watch = SimulatedClock(said.append, wanted=0.5)
    for k in range(2000):
        watch.note(0.005 * k)
        clock.sleep(0.01)
    assert not said and watch.speed == pytest.approx(0.5, rel=1e-6)


@pytest.mark.realtime
def test_a_simulated_loop_has_no_priority_and_its_time_waits_while_it_is_stopped():
    with LoopProcess(build_loop, 7) as process:
        assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
        assert process.scheduling.text == "normal scheduling, as no real arm waits"
        before = process.status()
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.6)
        os.kill(process.pid, signal.SIGCONT)
        started = time.monotonic()
        after = process.status()
        slack = 0.2 + time.monotonic() - started
        assert 1e-9 * (after.stamp_ns - before.stamp_ns) < 0.3 + slack  # it does not run after the wall clock
        assert after.missed_deadlines == 0


@pytest.mark.processes
def test_no_emulator_takes_priority_unless_it_is_asked_to():
    command = [sys.executable, "-m", "sysid_ros.emulators.fri", "--robot", "lbr_med7", "--seconds", "0.1"]
    said = subprocess.run([*command, "--port", "30299"], capture_output=True, text=True, check=True)
    assert "scheduling: normal scheduling, as no real arm waits" in said.stdout + said.stderr
