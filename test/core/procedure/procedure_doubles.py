"""Estimates, and a policy that needs no robot."""

import numpy as np

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode, EstimateStatus, ParameterEstimate, Quantity
from sysid_ros.core.procedure import ModelPolicy, PayloadModel


def make_estimate(half_width, alarm="", center=1.0, target="payload", status=EstimateStatus.IDENTIFIED, shortfall=""):
    """Ten intervals of the same width; with an alarm none."""
    narrower = {EstimateStatus.IDENTIFIED: tuple(Quantity), EstimateStatus.PARTIAL: (Quantity.COM,)}.get(status, ())
    value, radius = (np.nan, np.nan) if alarm else (center, half_width)
    return ParameterEstimate(
        values=np.full(10, value), lower=np.full(10, value - radius), upper=np.full(10, value + radius), method="test",
        guarantee="", is_guaranteed=True, is_consistent=not alarm,
        alarm=Alarm(AlarmCode.JOINTLY_INCONSISTENT, alarm) if alarm else None, target=target, frame="joint_1",
        number_of_windows=int(status is not EstimateStatus.NO_DATA), data_seconds=1.0, condition_number=1.0,
        narrower=frozenset(narrower), shortfall=shortfall,
    )  # fmt: skip


class FixedPolicy(ModelPolicy):
    """Tightens bounds, and never changes the nominal payload."""

    def __init__(self, may_tighten=True):
        super().__init__(None, self.reset(), may_tighten)

    def reset(self):
        return PayloadModel(Box(np.full(10, -10.0), np.full(10, 10.0)), np.zeros(10))

    def for_chain(self, estimate, posture):
        return self.for_plan(estimate)

    def easiest_to_hold(self, posture):
        return self.in_use

    def final(self, estimate, posture):
        return self.for_plan(estimate)
