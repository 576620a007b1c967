"""Evidence in the samples of a goal besides the bounds: causes of an inconsistency, or a statistical interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from rcl_interfaces.srv import GetParameters
from rclpy.parameter import parameter_value_to_python

from sysid_msgs.action import Identify
from sysid_msgs.msg import Hypothesis as HypothesisMessage
from sysid_ros.adapters.estimator.parameters import EstimatorParameters
from sysid_ros.adapters.identification.files import Evidence, join_samples
from sysid_ros.adapters.identification.monitor import Records, TareSamples
from sysid_ros.adapters.identification.session import Session
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.bounds.agreement import measure_agreement
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.point.statistics import StatisticalInterval, compute_statistical_interval
from sysid_ros.core.estimation.tare import Tare, known_rows, make_tare
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.procedure import IdentificationErrorCode, IdentificationFailed
from sysid_ros.reports.result import check_windows, collect_rows, explain_alarm
from sysid_ros.ros.conversions.common import message_of
from sysid_ros.ros.parameters import declared

TOLD = 3
"""Hypotheses in the text of a result; the field has all."""
_ANSWER_SECONDS = 10.0
"""How long the estimator may take to report its settings [s]: on a busy machine it has a backlog of samples."""


@dataclass(frozen=True)
class EvidenceSource:
    """Analyses the samples of a goal after its end.

    Attributes:
        robot: The arm.
        is_cancelled: Ends the work with its results so far.
        tare: The last one, with its samples; None where none was taken here.
    """

    robot: RobotModel
    is_cancelled: Callable[[], bool] = lambda: False
    tare: TareSamples | None = None

    def find(self, settings: EstimatorSettings | None, estimate: ParameterEstimate, records: Records) -> Evidence:
        """Explain an alarm, or compute the statistical interval of a usable estimate of a payload.

        Args:
            settings: Settings of the estimate. Where they are not known, hypotheses are tested with the defaults and
                there is no interval.
            estimate: The last estimate.
            records: Messages of the goal.
        """
        block = samples_of_estimate(records)
        if block is None:
            return Evidence()
        if not estimate.is_consistent:
            known = settings or EstimatorSettings()
            explanation = explain_alarm(self.robot, known, estimate, [block], self.is_cancelled)
            rows = collect_rows(self.robot, known, [block], self.is_cancelled)
            windows = check_windows(self.robot, known, rows, None, int(records.samples[0].stamps[0]))
            return Evidence(explanation=explanation, windows=windows)
        if settings is None or estimate.target != settings.target or not np.all(np.isfinite(estimate.values)):
            return Evidence()
        parts = [block.slice(start, start + 1000) for start in range(0, len(block), 1000)]
        rows = collect_rows(self.robot, settings, parts, self.is_cancelled)
        if self.is_cancelled():
            return Evidence()
        unknowns, tare = describe_unknowns(self.robot, settings), self._tare_of(settings, records)
        # Rows without the tare of the estimator give wider bounds.
        is_whole = estimate.is_guaranteed and (tare is not None or not records.tare)
        found = Box(estimate.lower, estimate.upper) if is_whole else None
        beside = known_rows(self.robot, unknowns, settings, rows, tare)
        agreement = measure_agreement(unknowns, [*beside, *rows], found)
        statistical = compute_statistical_interval(self.robot, settings, rows, estimate.box, beside)
        return Evidence(statistical=statistical, agreement=agreement)

    def _tare_of(self, settings: EstimatorSettings, records: Records) -> Tare | None:
        """Make the tare that the estimate counts on once more; None without one, or where its samples are not here."""
        if not records.tare or self.tare is None or self.tare.text != records.tare:
            return None
        try:
            return make_tare(self.robot, [self.tare.samples], replace(settings, gripper=self.tare.gripper))
        except SysidError:
            return None


def samples_of_estimate(records: Records) -> SampleBlock | None:
    """Return the samples that the last estimate rests on: of the present payload, from where the estimator began."""
    if not records.samples:
        return None
    epoch = records.samples[-1].payload_epoch
    block, _ = join_samples([part for part in records.samples if part.payload_epoch == epoch])
    first = int(np.searchsorted(block.stamps, records.first_stamp_ns))
    return block.slice(first) if first < len(block) else None


def ask_settings(session: Session) -> EstimatorSettings | None:
    """Return the settings of the node ``estimator``; None if it does not answer."""
    names = [name for name, one in declared(EstimatorParameters).items() if one.group == "estimator"]
    try:
        answer = session.call(
            session.clients.estimator_parameters,
            GetParameters.Request(names=names),
            IdentificationErrorCode.TIMEOUT,
            _ANSWER_SECONDS,
            is_cancelled=lambda: False,
        )
        values = dict(zip(names, map(parameter_value_to_python, answer.values), strict=True))
        return EstimatorParameters().with_values(**values).estimator
    except (IdentificationFailed, SysidError, ValueError):
        return None


def add_evidence(result: Identify.Result, evidence: Evidence) -> None:
    """Put the findings into the fields of a result, and the likeliest hypotheses into its text."""
    if evidence.statistical is not None:
        result.statistical_confidence = float(evidence.statistical.confidence)
        result.statistical_lower, result.statistical_upper = evidence.statistical.lower, evidence.statistical.upper
    if evidence.agreement is not None and evidence.agreement.doubt:
        result.error_text += f"{'. ' if result.error_text else ''}{evidence.agreement.doubt}"
    if evidence.explanation is not None and evidence.explanation.hypotheses:
        result.hypotheses = [
            message_of(HypothesisMessage, one, assumption=one.assumption.value)
            for one in evidence.explanation.hypotheses
        ]
        texts = [f"{number}. {one.text}" for number, one in enumerate(evidence.explanation.hypotheses[:TOLD], start=1)]
        result.error_text += f". What could be wrong, likeliest first, none of it proven: {'; '.join(texts)}"


def interval_of(result: Identify.Result) -> StatisticalInterval | None:
    """Return the statistical interval of a result; None where it has none."""
    if not result.statistical_confidence:
        return None
    lower, upper = (np.array(side, dtype=float) for side in (result.statistical_lower, result.statistical_upper))
    return StatisticalInterval(lower, upper, float(result.statistical_confidence))
