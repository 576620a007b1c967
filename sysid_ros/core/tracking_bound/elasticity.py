"""Elastic joints beside the tracking bound, which is proven for rigid ones: conditions, and additions to the bound.

The proof of :mod:`bound` has no springs. With elastic joints the bound is given only where the linear loop about the
motion is stable with a gain to spare, at every end of the stiffness; and where positions are measured on the motor side
the links may be off by the deflection of the gears besides. docs/theory/tracking_bound.md, "Elastic joints".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.sampled_loop import LoopCase, SampledLoop
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import PositionSide, RobotModel
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable

Array = NDArray[np.float64]

GAIN_TO_SPARE = 1.25
"""Factor of the loop gain that a motion's loop must survive [-]."""
CLAIM = (
    " The joints are elastic: that is not part of the proof. The linear loop about start, middle and end of the motion "
    "is stable with 1.25 times its gain at both ends of the stiffness; deflections of gears that carry at most the "
    "torque limits are added where positions are those of the motors."
)


def require_elastic_margin(robot: RobotModel, model: ControlModel, settings: RobustSettings, q: Array) -> None:
    """Require that the loop about postures of a motion survives :data:`GAIN_TO_SPARE`; rigid joints always do.

    Start, middle and end of its positions q (N, n) [rad] count.

    Raises:
        BoundNotAvailable: It does not.
    """
    if robot.elasticity is None:
        return
    truths = [add_payload(model.theta, one) for one in _possible_payloads(model)]
    for node in sorted({0, (len(q) - 1) // 2, len(q) - 1}):
        for truth in truths:
            for share in (-1.0, 1.0):
                loop = SampledLoop(robot, settings, LoopCase(q[node], model.total, truth, share))
                if max(loop.radius_with(1.0), loop.radius_with(GAIN_TO_SPARE)) >= 1.0:
                    raise BoundNotAvailable(
                        f"with elastic joints the loop at {np.array2string(q[node], precision=2)} rad does not survive "
                        f"{GAIN_TO_SPARE} times its gain at a bandwidth of {settings.bandwidth:g} 1/s; lower the "
                        "bandwidth, or move less far out"
                    )


def link_errors(robot: RobotModel) -> tuple[Array, Array]:
    """Return the largest deviation of links where motors are measured, (n,) [rad] and (n,) [rad/s]; else zero."""
    elasticity = robot.elasticity
    if elasticity is None or elasticity.position_side is PositionSide.LINK:
        return np.zeros(robot.n), np.zeros(robot.n)
    return robot.deflection, elasticity.deflection_rate


def _possible_payloads(model: ControlModel) -> list[Array]:
    """List the lightest and the heaviest payload of the box, of the nominal one's shape where that has a mass."""
    lower, upper = float(model.payload_box.lower[0]), float(model.payload_box.upper[0])
    shape = model.payload_box.center if model.payload_box.center[0] > 0.0 else model.payload
    if not shape[0] > 0.0:
        return [np.zeros(shape.size)]
    return [max(mass, 0.0) / shape[0] * shape for mass in (lower, upper)]
