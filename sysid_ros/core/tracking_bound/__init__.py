"""Proven bounds of the tracking error.

The modules follow the steps of the proof in docs/theory/tracking_bound.md:

1. error dynamics: :mod:`disturbance`, :mod:`model_terms`, :mod:`inertia_columns`; between samples and in the
   tube: :mod:`between`, :mod:`term_nodes`, or proven, :mod:`node_norms`, :mod:`derivative_bounds`,
   :mod:`term_growth` and :mod:`enclosed`;
2. payload set and inertia ratio: :mod:`uncertainty`;
3. sampled closed-loop response: :mod:`scalar_loop`, :mod:`loop_response`;
4. convolution bound, equation (2): :mod:`convolution`;
5. tube map and theorem: :mod:`tube`, :mod:`bound`;
6. torque: :meth:`tube.LoopBounds.bound_torque`;
7. chains of motions: :mod:`motion`, :meth:`bound.TrackingBound.until`;
8. all stops of a motion: :mod:`stops`, :meth:`bound.TrackingBound.in_stops`.
"""

from sysid_ros.core.tracking_bound.bound import TrackingBound, TrackingHistory, tracking_bound
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable

__all__ = [
    "BoundNotAvailable",
    "TrackingBound",
    "TrackingHistory",
    "choose_payload",
    "tracking_bound",
]
