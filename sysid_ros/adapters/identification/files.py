"""Writes the files of a goal from its messages."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
from geometry_msgs.msg import InertiaStamped
from std_msgs.msg import Header

from sysid_ros.adapters.identification.monitor import Records
from sysid_ros.core.certification.certificate import margin_rows
from sysid_ros.core.estimation.bounds.agreement import Agreement
from sysid_ros.core.estimation.hypotheses import Explanation
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate, Quantity
from sysid_ros.core.estimation.point.statistics import StatisticalInterval
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibrated import describe_unknown_arm
from sysid_ros.core.model.robot import RobotModel, frame_placement
from sysid_ros.core.procedure import Identification, IdentificationSettings
from sysid_ros.reports.payload import exported_payload, in_frame
from sysid_ros.reports.result import EstimateHistory, IdentificationResult, MotionRecord, WindowCheck, followed_motions
from sysid_ros.reports.torque_fit import differentiate, predict_torque
from sysid_ros.reports.writer import write_results
from sysid_ros.ros.conversions.common import stamp_to_message
from sysid_ros.ros.conversions.estimate import inertia_message
from sysid_ros.ros.conversions.samples import Samples

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


def join_samples(parts: Sequence[Samples]) -> tuple[SampleBlock, dict[str, np.ndarray]]:
    """All usable samples in one block, and the desired and commanded values, each (N, n)."""
    stamps = np.concatenate([part.stamps[part.valid] for part in parts])
    _, first = np.unique(stamps, return_index=True)
    columns = {
        name: np.concatenate([getattr(part, name)[part.valid] for part in parts])[first]
        for name in ("sequence", "q", "v", "tau", "q_d", "v_d", "tau_command")
    }
    block = SampleBlock(stamps[first], columns["sequence"], columns["q"], columns["v"], columns["tau"])
    return block, {name: columns[name] for name in ("q_d", "v_d", "tau_command")}


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
