"""Results of a goal from its messages: files, and evidence besides the bounds."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
from geometry_msgs.msg import InertiaStamped
from rcl_interfaces.srv import GetParameters
from rclpy.parameter import parameter_value_to_python
from std_msgs.msg import Header

from sysid_msgs.action import Identify
from sysid_msgs.msg import Hypothesis as HypothesisMessage
from sysid_ros.adapters.estimator import EstimatorParameters
from sysid_ros.adapters.identification.monitor import Records, TareSamples, join_samples, samples_of_estimate
from sysid_ros.adapters.identification.session import Session
from sysid_ros.core.certification.certificate import margin_rows
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.bounds.agreement import Agreement, measure_agreement
from sysid_ros.core.estimation.hypotheses import Explanation
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate, Quantity
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.point.statistics import StatisticalInterval, compute_statistical_interval
from sysid_ros.core.estimation.tare import known_rows, make_tare
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibrated import describe_unknown_arm
from sysid_ros.core.model.robot import RobotModel, frame_placement
from sysid_ros.core.procedure import (
    Identification,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
)
from sysid_ros.reports.payload import exported_payload, in_frame
from sysid_ros.reports.result import (
    EstimateHistory,
    IdentificationResult,
    MotionRecord,
    WindowCheck,
    check_windows,
    collect_rows,
    explain_alarm,
    followed_motions,
)
from sysid_ros.reports.torque_fit import differentiate, predict_torque
from sysid_ros.reports.writer import write_results
from sysid_ros.ros.conversions.common import message_of, stamp_to_message
from sysid_ros.ros.conversions.estimate import inertia_message
from sysid_ros.ros.parameters import declared

VERSIONED = ("sysid_ros", "rclpy", "pin", "mujoco", "casadi", "numpy", "scipy")
"""Distributions whose versions go into the files."""


@dataclass(frozen=True)
class Evidence:
    """Evidence in samples besides the bounds.

    Attributes:
        explanation: Hypotheses about data that no payload agrees with; None where some do.
        windows: Of an alarm, every window beside the range that the assumptions allow; None otherwise.
        statistical: Statistical interval of the parameters; None where there is none.
        agreement: How much of the allowed errors the data use; None where that was not computed.
    """

    explanation: Explanation | None = None
    statistical: StatisticalInterval | None = None
    windows: WindowCheck | None = None
    agreement: Agreement | None = None


def write_files(
    folder: Path,
    robot: RobotModel,
    outcome: Identification | None,
    records: Records,
    settings: IdentificationSettings,
    evidence: Evidence = Evidence(),
) -> tuple[str, ...]:
    """Write the files of one goal.

    Returns:
        Files that were left out, with the reason, a sentence each.

    Raises:
        SysidError: A file cannot be written.
    """
    result = build_result(robot, outcome, records, settings, evidence)
    if result is None:
        return ("no files were written: there is neither an estimate nor a sample",)
    return write_results(result, folder).left_out


def build_result(
    robot: RobotModel,
    outcome: Identification | None,
    records: Records,
    settings: IdentificationSettings,
    evidence: Evidence = Evidence(),
) -> IdentificationResult | None:
    """Return the result of one goal for export; None where there is neither estimate nor sample."""
    if not records.estimates or not records.samples:
        return None
    robot = robot.with_gripper(records.gripper)
    estimate = outcome.estimate if outcome is not None else records.estimates[-1][1]
    block, references = join_samples(records.samples)
    start_ns = int(block.stamps[0])
    history = EstimateHistory.from_estimates(
        [1e-9 * (stamp - start_ns) for stamp, _ in records.estimates], [one for _, one in records.estimates]
    )
    motions = tuple(
        MotionRecord(
            1e-9 * (stamp - start_ns),
            plan.trajectory,
            float("nan") if plan.condition_number is None else plan.condition_number,
            plan.certificate.claims,
            margin_rows(plan.certificate),
        )
        for stamp, plan in records.plans
    )
    return IdentificationResult(
        robot=robot,
        estimate=estimate,
        history=history,
        samples=block,
        reference_q=references["q_d"],
        reference_v=references["v_d"],
        commanded_tau=references["tau_command"],
        predicted_tau=_predict(robot, estimate, block) if estimate.is_consistent else None,
        windows=evidence.windows,
        explanation=evidence.explanation,
        statistical=evidence.statistical,
        agreement=evidence.agreement,
        motions=followed_motions(motions, block.seconds, references["q_d"]),
        information=records.information,
        timing=records.timing,
        truth=records.truth if estimate.target == "payload" else None,
        settings={
            **asdict(settings),
            "gripper": records.gripper,
            "stopped because": outcome.stop_reason if outcome is not None else "alarm",
        },
        versions=versions(),
        warnings=(
            *robot.warnings,
            *([] if records.timing_doubt is None else [records.timing_doubt]),
            *describe_unknown_arm(robot, records.serial_number),
        ),
    )


def payload_message(
    robot: RobotModel, estimate: ParameterEstimate, stamp_ns: int, prefix: str
) -> InertiaStamped | None:
    """Return the payload for controller files, in the tool frame; None where it is not known."""
    if not estimate.narrower >= frozenset(Quantity):
        return None
    known = in_frame(exported_payload(robot, estimate), frame_placement(robot, robot.tool_frame))
    header = Header(stamp=stamp_to_message(stamp_ns), frame_id=prefix + robot.tool_frame)
    return InertiaStamped(header=header, inertia=inertia_message(known.values))


def versions() -> dict[str, str]:
    """Versions of the software behind the result, by name."""
    found = {"python": platform.python_version()}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _predict(robot: RobotModel, estimate: ParameterEstimate, block: SampleBlock) -> np.ndarray:
    payload = estimate.values
    if estimate.target != "payload":
        payload = payload - robot.theta_nominal[robot.inertial_slice(robot.n)]
    return predict_torque(robot, payload, block.q, block.v, differentiate(block.stamps, block.v))


TOLD = 3
"""Hypotheses in the text of a result; the field has all."""
_ANSWER_SECONDS = 10.0
"""How long the estimator may take to report its settings [s]: on a busy machine it has a backlog of samples."""


def find_evidence(
    robot: RobotModel,
    settings: EstimatorSettings | None,
    estimate: ParameterEstimate,
    records: Records,
    tare: TareSamples | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Evidence:
    """Explain an alarm, or compute the statistical interval of a usable estimate of a payload, after a goal.

    Args:
        robot: The arm.
        settings: Settings of the estimate. Where they are not known, hypotheses are tested with the defaults and
            there is no interval.
        estimate: The last estimate.
        records: Messages of the goal.
        tare: The last one, with its samples; None where none was taken here.
        is_cancelled: Ends the work with its results so far.
    """
    block = samples_of_estimate(records)
    if block is None:
        return Evidence()
    if not estimate.is_consistent:
        known = settings or EstimatorSettings()
        explanation = explain_alarm(robot, known, estimate, [block], is_cancelled)
        rows = collect_rows(robot, known, [block], is_cancelled)
        windows = check_windows(robot, known, rows, None, int(records.samples[0].stamps[0]))
        return Evidence(explanation=explanation, windows=windows)
    if settings is None or estimate.target != settings.target or not np.all(np.isfinite(estimate.values)):
        return Evidence()
    parts = [block.slice(start, start + 1000) for start in range(0, len(block), 1000)]
    rows = collect_rows(robot, settings, parts, is_cancelled)
    if is_cancelled():
        return Evidence()
    unknowns, used = describe_unknowns(robot, settings), None
    if records.tare and tare is not None and tare.text == records.tare:  # the one that the estimate counts on
        with suppress(SysidError):
            used = make_tare(robot, [tare.samples], replace(settings, gripper=tare.gripper))
    # Rows without the tare of the estimator give wider bounds.
    is_whole = estimate.is_guaranteed and (used is not None or not records.tare)
    found = Box(estimate.lower, estimate.upper) if is_whole else None
    beside = known_rows(robot, unknowns, settings, rows, used)
    agreement = measure_agreement(robot, unknowns, [*beside, *rows], found)
    return Evidence(
        statistical=compute_statistical_interval(robot, settings, rows, estimate.box, beside), agreement=agreement
    )


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
