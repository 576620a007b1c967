"""Between messages and the types of the core; nothing else reads or fills the fields of these messages.

Joints are matched by name, never by order. Every received message is checked: one that does not fit raises an
error with its type, the field, the value found and the value needed.
"""

from sysid_ros.ros.conversions.common import (
    InvalidMessage,
    joint_order,
    joint_vector_from_message,
    stamp_from_message,
    stamp_to_message,
)
from sysid_ros.ros.conversions.contact import efforts_message, wrench_message
from sysid_ros.ros.conversions.estimate import (
    estimate_from_message,
    estimate_to_message,
    inertia_from_message,
    inertia_message,
    information_from_message,
    nominal_payload_from_message,
    truth_from_message,
    truth_to_message,
)
from sysid_ros.ros.conversions.identifiability import (
    analysis_from_request,
    no_report,
    report_to_message,
    require_no_mechanism,
)
from sysid_ros.ros.conversions.plans import (
    authentication_from_message,
    certificate_from_message,
    certificate_to_message,
    certified_from_message,
    certified_plan_from_message,
    certified_plan_to_message,
    certified_to_message,
    control_law_from_message,
    control_law_to_message,
    scene_from_message,
    scene_to_message,
    trajectory_from_message,
    trajectory_to_message,
)
from sysid_ros.ros.conversions.samples import Samples, joint_state_message, samples_from_message, samples_to_message

__all__ = [
    "InvalidMessage",
    "Samples",
    "analysis_from_request",
    "certificate_from_message",
    "certificate_to_message",
    "authentication_from_message",
    "certified_from_message",
    "certified_plan_from_message",
    "certified_plan_to_message",
    "certified_to_message",
    "control_law_from_message",
    "control_law_to_message",
    "efforts_message",
    "estimate_from_message",
    "estimate_to_message",
    "inertia_from_message",
    "inertia_message",
    "information_from_message",
    "joint_order",
    "joint_state_message",
    "joint_vector_from_message",
    "no_report",
    "nominal_payload_from_message",
    "report_to_message",
    "require_no_mechanism",
    "samples_from_message",
    "samples_to_message",
    "scene_from_message",
    "scene_to_message",
    "stamp_from_message",
    "stamp_to_message",
    "trajectory_from_message",
    "trajectory_to_message",
    "truth_from_message",
    "truth_to_message",
    "wrench_message",
]
