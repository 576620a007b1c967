"""Whether any motion of an arm can ever be certified: checked before anything is started for one that cannot."""

from __future__ import annotations

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable


def require_certifiable(robot: RobotModel) -> None:
    """Reject an arm that cannot be certified to hold even in the easiest case.

    That is at rest, in the home posture, with a payload that is known exactly: the prior's nominal one. Quantities that
    are not known yet are no reason to reject an arm: weighing may determine enough of them.

    Raises:
        SysidError: It cannot.
    """
    payload = robot.payload_prior.nominal
    try:
        Assumptions.of_payload(robot, Box(payload, payload)).bound(robot.home)
    except BoundNotAvailable as error:
        raise SysidError(
            f"no motion of '{robot.name}' can be certified: its own parameters are too uncertain. Even at rest in its "
            f"home posture, with a payload that is known exactly, its position errors have no bound ({error})"
        ) from error
