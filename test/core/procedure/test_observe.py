"""Identification of what an arm holds that somebody else moves: it is watched, and nothing is asked of it."""

from types import SimpleNamespace

import numpy as np
import pytest

from sysid_ros.core.procedure import (
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    Phase,
    run_identification,
)


class Watched:
    """An arm that can only be watched: any other call is an error. Its estimate narrows with time."""

    def __init__(self, alarm_at=np.inf, is_silent=False):
        self.calls, self.time = [], 0.0
        self._alarm_at, self._is_silent = alarm_at, is_silent

    def check_ready(self):
        self.calls.append("check_ready")

    def reset_estimate(self, reason):
        self.calls.append("reset_estimate")

    def wait(self, duration):
        self.time += duration

    def settle(self, duration):
        self.calls.append("settle")
        self.time += duration

    def brake(self, reason):
        self.calls.append("brake")

    def estimate(self):
        if not self.time or self._is_silent:
            return None
        width = 1.0 / (1.0 + self.time)
        alarm = "no payload agrees with the data" if self.time >= self._alarm_at else ""
        return SimpleNamespace(
            values=np.ones(10), lower=np.full(10, 1.0 - width), upper=np.full(10, 1.0 + width), alarm=alarm,
            is_consistent=not alarm,
        )  # fmt: skip


def settings(**changes):
    return IdentificationSettings(strategy="observe", max_motion_time=5.0, **changes)


def test_the_arm_is_watched_for_as_long_as_asked_and_never_moved():
    arm, progress = Watched(), []
    outcome = run_identification(arm, settings(), on_progress=progress.append)
    assert arm.calls == ["check_ready", "reset_estimate", "settle"]
    assert arm.time == pytest.approx(5.0) and outcome.stop_reason == "the arm was watched for 5 s"
    assert outcome.motions == () and outcome.motion_time == 0.0
    assert outcome.estimate.upper[0] == pytest.approx(1.0 + 1.0 / 6.0)
    shares = [one.progress for one in progress]
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert {one.phase for one in progress} == {Phase.WAITING, Phase.ESTIMATING}


def test_it_ends_early_when_the_payload_is_known_well_enough():
    arm = Watched()
    outcome = run_identification(arm, settings(target_mass_width=1.0))
    assert "narrower than 1 kg" in outcome.stop_reason and arm.time < 2.0


@pytest.mark.parametrize(
    ("arm", "cancelled_at", "code"),
    [
        (Watched(alarm_at=2.0), np.inf, IdentificationErrorCode.INCONSISTENT),
        (Watched(is_silent=True), np.inf, IdentificationErrorCode.NO_SAMPLES),
        (Watched(), 1.0, IdentificationErrorCode.CANCELED),
    ],
)
def test_alarm_silence_and_cancelling_end_it(arm, cancelled_at, code):
    with pytest.raises(IdentificationFailed) as caught:
        run_identification(arm, settings(), is_cancelled=lambda: arm.time >= cancelled_at)
    assert caught.value.code == code
    assert not {"plan", "execute"} & set(arm.calls)
