"""Answers of the node ``identifiability``, before their conversion to messages."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from numpy.typing import ArrayLike

from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.identifiability.mechanism import (
    Comparison,
    MechanismOptions,
    PayloadIdentifiability,
    compare_robot,
    compare_urdf,
)
from sysid_ros.core.identifiability.report import Report, report_data, report_structure
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.identifiability import IdentifiabilityResult, identifiability_markdown


class Answer(NamedTuple):
    """A report, and the same with the table of symbols as a document."""

    report: Report
    markdown: str


def answer_structure(
    text: str, model: str | None, settings: AnalysisSettings | None = None, options: MechanismOptions | None = None
) -> Answer:
    """Analyse the structure of the robot of a URDF, with the settings of an arm (mounting, moving joints) if given.

    Raises:
        SysidError: It cannot be analysed, or the settings are for another robot; the message names the fault.
    """
    if model is None:
        comparison = compare_urdf(text, settings, options)
    else:
        comparison = compare_robot(load_robot(model, text), settings, options)
    return Answer(report_structure(comparison), identifiability_markdown(IdentifiabilityResult(comparison)))


class PayloadAnswers:
    """Identifiability of the payload from the data of the estimator."""

    def __init__(self, robot: RobotModel):
        self._robot = robot
        self._targets: dict[str, PayloadIdentifiability] = {}

    def answer(self, estimate: ParameterEstimate, information: ArrayLike, with_advice: bool = True) -> Answer:
        """Return the answer for an estimate of the estimator, with its Gram matrix (10, 10) and advice on a motion.

        Bounds count where they are guaranteed.

        Raises:
            ParameterOutOfRange: The target is unknown, or the information is of another arm.
        """
        if estimate.target not in self._targets:
            prior = describe_unknowns(self._robot, EstimatorSettings(target=estimate.target)).prior
            self._targets[estimate.target] = PayloadIdentifiability(self._robot, prior)
        payload = self._targets[estimate.target]
        box = estimate.box if estimate.is_consistent and estimate.is_guaranteed else None
        analysis = payload.analyze(information, box)
        advice = payload.advise(analysis, information) if with_advice else None
        plain = Comparison(analysis.structure, analysis.structure, ())
        reason = _no_bounds(estimate)
        result = IdentifiabilityResult(plain, analysis, advice, f"{estimate.target} of {self._robot.name}", reason)
        report = report_data(analysis, advice)
        text = report.text if reason is None else f"{report.text} {reason}"
        return Answer(replace(report, text=text), identifiability_markdown(result))


def _no_bounds(estimate: ParameterEstimate) -> str | None:
    if not estimate.is_consistent:
        return f"These parameters have been excited, but no payload agrees with the data: {estimate.alarm_text}"
    if not estimate.is_guaranteed:
        return f"No guaranteed bounds: {estimate.guarantee}"
    return None
