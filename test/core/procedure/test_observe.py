"""Identification of what an arm holds that somebody else moves: it is watched, and nothing is asked of it."""

import numpy as np
import pytest
from procedure_doubles import FixedPolicy, make_estimate

from sysid_ros.core.estimation.parameters.estimate import EstimateStatus
from sysid_ros.core.procedure import (
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    Phase,
    Ports,
    TareStep,
    run_identification,
)


class Watched:
    """An arm that can only be watched: any other call is an error. Its estimate narrows with time."""

    def __init__(self, alarm_at=np.inf, is_silent=False, status=EstimateStatus.IDENTIFIED):
        self.calls, self.time = [], 0.0
        self.status = status
        self._alarm_at, self._is_silent = alarm_at, is_silent

    def wait_until_ready(self):
        self.calls.append("wait_until_ready")

    def set_model(self, model, is_reset=False):
        self.calls.append("reset model" if is_reset else "set model")

    def wait_until_holding(self, model):
        pass

    def posture(self):
        return np.zeros(1)

    def reset(self, reason, tare=TareStep.KEEP):
        self.calls.append("reset")

    def wait(self, duration):
        self.time += duration

    def catch_up(self):
        self.calls.append("catch_up")

    def brake(self, reason):
        self.calls.append("brake")

    def latest(self):
        if not self.time or self._is_silent:
            return None
        alarm = "no payload agrees with the data" if self.time >= self._alarm_at else ""
        return make_estimate(0.5 / (1.0 + self.time), alarm, status=self.status, shortfall=f"only {self.time:g} s")


def identify(arm, settings, **options):
    return run_identification(Ports(arm, arm, arm), FixedPolicy(), settings, **options)


def settings(**changes):
    return IdentificationSettings(strategy="observe", max_motion_time=5.0, **changes)


def test_the_arm_is_watched_for_as_long_as_asked_and_never_moved():
    arm, progress = Watched(), []
    outcome = identify(arm, settings(), on_progress=progress.append)
    assert arm.calls == ["wait_until_ready", "reset model", "reset", "catch_up", "set model"]
    assert arm.time == pytest.approx(5.0) and outcome.stop_reason == "the arm was watched for 5 s"
    assert outcome.plans == () and outcome.motion_time == 0.0
    assert outcome.estimate.upper[0] == pytest.approx(1.0 + 0.5 / 6.0)
    shares = [one.progress for one in progress]
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert {one.phase for one in progress} == {Phase.WAITING, Phase.ESTIMATING}


def test_it_ends_early_when_the_payload_is_known_well_enough():
    arm = Watched()
    outcome = identify(arm, settings(target_mass_width=1.0))
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
        identify(arm, settings(), is_cancelled=lambda: arm.time >= cancelled_at)
    assert caught.value.code == code
    assert not {"plan", "plan_excitation", "execute"} & set(arm.calls)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (EstimateStatus.NO_DATA, IdentificationErrorCode.NO_WINDOWS),
        (EstimateStatus.PRIOR_ONLY, IdentificationErrorCode.NOT_IDENTIFIED),
        (EstimateStatus.PARTIAL, IdentificationErrorCode.NOT_IDENTIFIED),  # of it the mass is not
    ],
)
def test_what_says_no_more_than_the_prior_is_no_success(status, code):
    arm = Watched(status=status)
    with pytest.raises(IdentificationFailed, match="only 5 s") as failure:
        identify(arm, settings())
    assert failure.value.code is code and arm.calls[-1] == "brake" and "set model" not in arm.calls
    with pytest.raises(IdentificationFailed) as failure:  # a prior that is narrow enough is no result either
        identify(Watched(status=status), settings(target_mass_width=10.0))
    assert failure.value.code is code
