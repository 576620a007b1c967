"""Identifiability: reports, and questions about a mechanism."""

from __future__ import annotations

from std_msgs.msg import Header

from sysid_msgs import msg as messages
from sysid_msgs import srv as services
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.mechanism import MechanismOptions
from sysid_ros.core.identifiability.report import Report
from sysid_ros.core.identifiability.settings import TOLERANCE, AnalysisSettings
from sysid_ros.ros.conversions.common import message_of, stamp_to_message


def report_to_message(report: Report, stamp_ns: int, frame: str = "") -> messages.IdentifiabilityReport:
    """Convert a report to a message.

    Args:
        report: The report.
        stamp_ns: When the analysis was made, or stamp of the last sample of the data [ns].
        frame: Frame the parameters of a payload are expressed in; empty where each has its own joint's.
    """
    header = Header(stamp=stamp_to_message(stamp_ns), frame_id=frame)
    return message_of(messages.IdentifiabilityReport, report, header=header)


def no_report(method: str, reason: str, stamp_ns: int) -> messages.IdentifiabilityReport:
    """Make a message that says why there is no report by a method, ``structural`` or ``data``."""
    return messages.IdentifiabilityReport(
        header=Header(stamp=stamp_to_message(stamp_ns)), method=method, condition_number=float("nan"), text=reason
    )


def analysis_from_request(
    request: services.AnalyzeIdentifiability.Request,
) -> tuple[AnalysisSettings, MechanismOptions]:
    """Return the question about a mechanism; the URDF itself stays in the request.

    Raises:
        ParameterOutOfRange: A field is out of range; the message gives the allowed values.
    """
    tolerance = float(request.tolerance)
    settings = AnalysisSettings(
        measured=request.measured or "generalized_forces",
        motion="static" if request.static_only else "dynamic",
        joint_parameters=tuple(request.joint_parameters),
        known=tuple(request.known),
        tolerance=TOLERANCE if tolerance == 0.0 else tolerance,
    )
    options = MechanismOptions(
        gravity=tuple(request.gravity) if len(request.gravity) else None,
        is_floating=bool(request.floating),
        locked=tuple(request.locked),
        massless=request.massless or "as_modelled",
        rotors=request.rotors,
    )
    return settings, options


def require_no_mechanism(request: services.AnalyzeIdentifiability.Request) -> None:
    """Refuses a question about data that also describes a mechanism.

    Raises:
        ParameterOutOfRange: A field is given that would have no effect.
    """
    empty = services.AnalyzeIdentifiability.Request(method=request.method)
    given = [name for name in request.get_fields_and_field_types() if getattr(request, name) != getattr(empty, name)]
    if given:
        raise ParameterOutOfRange(", ".join(given), "given with method DATA", "only with method STRUCTURE")
