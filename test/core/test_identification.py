"""The identification procedure with a scripted arm: order of steps, stop rules, and rest after every failure."""

from __future__ import annotations

import numpy as np
import pytest

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.identification import (
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    MotionState,
    Phase,
    PlannedMotion,
    run_identification,
)


class FakeEstimate:
    def __init__(self, half_width: float, alarm: str = ""):
        self.values = np.full(10, 1.0)
        self.lower = np.full(10, 1.0 - half_width)
        self.upper = np.full(10, 1.0 + half_width)
        self.alarm = alarm
        self.is_consistent = not alarm


class FakeTrajectory:
    duration = 2.0


class FakeBackend:
    """An arm that needs ``duration`` of waiting per trajectory; ``widths`` are the estimates after each one."""

    def __init__(self, widths=(0.5, 0.2, 0.1), fail_at: str = "", alarm: str = "", certified_share=1.0):
        self.calls: list[str] = []
        self._widths = widths
        self._fail_at = fail_at
        self._alarm = alarm
        self._certified_share = certified_share
        self._remaining = 0.0
        self._executed = 0
        self.is_at_rest = True

    def _do(self, name: str) -> None:
        self.calls.append(name)
        if name == self._fail_at:
            raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, f"{name} failed")

    def check_ready(self):
        self._do("check_ready")

    def reset_estimate(self, reason):
        self._do("reset_estimate")

    def plan(self, index, duration, information, limit_share):
        self._do("plan")
        self.limit_share = limit_share
        return PlannedMotion(FakeTrajectory(), 10.0)

    def certify(self, motion):
        self._do("certify")
        if self.limit_share > self._certified_share:
            raise IdentificationFailed(IdentificationErrorCode.CERTIFICATE_REFUSED, "joint_7 is too fast")
        return "certificate"

    def execute(self, motion, certificate):
        assert certificate == "certificate"
        self._do("execute")
        self._remaining = motion.trajectory.duration
        self._executed += 1
        self.is_at_rest = False

    def motion_state(self):
        return MotionState(self._remaining > 0.0, self._fail_at == "motion", 0.5, "joint_4 left its tracking bound")

    def brake(self, reason):
        self.calls.append("brake")
        self.is_at_rest = True

    def estimate(self):
        if self._executed == 0:
            return None
        return FakeEstimate(self._widths[self._executed - 1], self._alarm)

    def information(self):
        return np.zeros((10, 10))

    def settle(self, duration):
        self._do("settle")

    def wait(self, duration):
        self._remaining -= duration
        if self._remaining <= 0.0:
            self.is_at_rest = True


SETTINGS = IdentificationSettings(trajectories=3, trajectory_duration=2.0, max_motion_time=6.0)


def test_runs_every_trajectory_in_order_and_reports_progress():
    backend, phases = FakeBackend(), []
    outcome = run_identification(backend, SETTINGS, on_progress=lambda p: phases.append((p.phase, p.progress)))
    assert backend.calls == ["check_ready", "reset_estimate", "settle"] + ["plan", "certify", "execute", "settle"] * 3
    assert outcome.motion_time == pytest.approx(6.0)
    assert outcome.estimate.upper[0] - outcome.estimate.lower[0] == pytest.approx(0.2)
    assert "all 3 trajectories" in outcome.stop_reason
    fractions = [fraction for _, fraction in phases]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert {Phase.WAITING, Phase.PLANNING, Phase.CERTIFYING, Phase.MOVING, Phase.ESTIMATING} <= {p for p, _ in phases}


def test_stops_when_the_target_width_is_met():
    settings = IdentificationSettings(
        trajectories=3, trajectory_duration=2.0, max_motion_time=6.0, target_mass_width=0.5
    )
    backend = FakeBackend()
    outcome = run_identification(backend, settings)
    assert backend.calls.count("execute") == 2
    assert "narrower than 0.5 kg" in outcome.stop_reason


def test_stops_when_nothing_shrinks_any_more():
    backend = FakeBackend(widths=(0.5, 0.499, 0.4))
    outcome = run_identification(backend, SETTINGS)
    assert backend.calls.count("execute") == 2
    assert "shrank no interval" in outcome.stop_reason


def test_never_exceeds_the_motion_time():
    settings = IdentificationSettings(trajectories=3, trajectory_duration=2.0, max_motion_time=5.0)
    backend = FakeBackend()
    outcome = run_identification(backend, settings)
    assert backend.calls.count("execute") == 2 and outcome.motion_time == pytest.approx(4.0)
    assert "would exceed 5 s" in outcome.stop_reason


@pytest.mark.parametrize("step", ["check_ready", "plan", "certify", "execute", "settle"])
def test_every_failing_step_ends_with_a_brake(step):
    backend = FakeBackend(fail_at=step)
    with pytest.raises(IdentificationFailed, match=f"{step} failed"):
        run_identification(backend, SETTINGS)
    assert backend.calls[-1] == "brake"


def test_a_refused_plan_is_planned_again_slower():
    backend, texts = FakeBackend(certified_share=0.8), []
    settings = IdentificationSettings(trajectories=1, trajectory_duration=2.0, max_motion_time=6.0)
    outcome = run_identification(backend, settings, on_progress=lambda p: texts.append(p.text))
    assert backend.calls.count("plan") == 2 and backend.calls.count("execute") == 1 == len(outcome.motions)
    assert backend.limit_share == 0.75
    assert "planning a slower one (joint_7 is too fast)" in texts


def test_a_plan_refused_at_every_speed_ends_with_the_refusal():
    backend = FakeBackend(certified_share=0.1)
    with pytest.raises(IdentificationFailed, match="joint_7 is too fast") as caught:
        run_identification(backend, SETTINGS)
    assert caught.value.code == IdentificationErrorCode.CERTIFICATE_REFUSED
    assert backend.calls.count("plan") == 3 and "execute" not in backend.calls and backend.calls[-1] == "brake"


def test_failed_motion_names_its_reason():
    backend = FakeBackend(fail_at="motion")
    with pytest.raises(IdentificationFailed, match="joint_4 left its tracking bound") as caught:
        run_identification(backend, SETTINGS)
    assert caught.value.code == IdentificationErrorCode.EXECUTION_FAILED
    assert backend.calls[-1] == "brake" and backend.is_at_rest


def test_empty_set_is_an_alarm_not_a_number():
    backend = FakeBackend(alarm="no payload explains the data")
    with pytest.raises(IdentificationFailed, match="no payload explains the data") as caught:
        run_identification(backend, SETTINGS)
    assert caught.value.code == IdentificationErrorCode.INCONSISTENT
    assert backend.calls[-1] == "brake"


def test_cancel_while_moving_brakes():
    backend = FakeBackend()
    with pytest.raises(IdentificationFailed) as caught:
        run_identification(backend, SETTINGS, is_cancelled=lambda: "execute" in backend.calls)
    assert caught.value.code == IdentificationErrorCode.CANCELED
    assert backend.calls[-2:] == ["execute", "brake"]


def test_a_motion_that_never_ends_times_out():
    backend = FakeBackend()
    backend.wait = lambda duration: None
    with pytest.raises(IdentificationFailed, match="still moves") as caught:
        run_identification(backend, SETTINGS)
    assert caught.value.code == IdentificationErrorCode.TIMEOUT


@pytest.mark.parametrize(
    ("name", "value"),
    [("trajectories", 0), ("max_motion_time", -1.0), ("trajectory_duration", 0.1), ("target_mass_width", float("nan"))],
)
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ParameterOutOfRange, match=name):
        IdentificationSettings(**{name: value})


def test_a_trajectory_longer_than_the_motion_time_is_refused():
    with pytest.raises(ParameterOutOfRange, match="at most max_motion_time"):
        IdentificationSettings(max_motion_time=3.0, trajectory_duration=5.0)
