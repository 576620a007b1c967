"""The package in a few calls: ``import sysid_ros as sr``, ``sr.load_robot``, ``sr.identify``; nothing of ROS or MuJoCo.

Everything else is in the packages of :mod:`sysid_ros.core` and :mod:`sysid_ros.reports`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.library.offline import identify_recording
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.options import InvalidRecording, ReadOptions
from sysid_ros.reports.recordings.readers import Recording, cut_repeats
from sysid_ros.reports.recordings.sense import RawSamples, make_recording
from sysid_ros.reports.recordings.tables import stamps_of
from sysid_ros.reports.result import IdentificationResult

ARRAYS = ("t", "q", "v", "tau")
"""Arrays of samples: times (N,) [s], or int64 [ns]; positions [rad], velocities [rad/s], torques in joint direction
[Nm], each (N, n). Velocities may be left out."""


def identify(
    data: str | Path | Recording | Mapping[str, ArrayLike],
    robot: str | Path | RobotModel,
    settings: EstimatorSettings | None = None,
    options: ReadOptions | None = None,
    on_progress: Callable[[float, ParameterEstimate], None] = lambda seconds, estimate: None,
    tare: str | Path | Recording | Mapping[str, ArrayLike] | None = None,
) -> IdentificationResult:
    """Identify what an arm holds from recorded samples.

    Args:
        data: A bag or table, a recording that was read, or arrays: see :data:`ARRAYS`.
        robot: The arm: a name, a settings file, a URDF, or what :func:`load_robot` returned.
        settings: Settings of the estimator.
        options: What a file leaves open: topics, names, units, sign.
        on_progress: Called with the time of the data [s] and the estimate, at every renewal of the bounds.
        tare: The same arm with its hand empty, a little before; None without.

    Returns:
        The result: ``estimate`` with values and bounds, ``is_usable``, ``explanation`` of an alarm. Write it with
        :func:`sysid_ros.write_results`.

    Raises:
        SysidError: Arm, data or settings cannot be used; the message says what to do.
    """
    model = robot if isinstance(robot, RobotModel) else load_robot(robot)

    def read(what: str | Path | Recording | Mapping[str, ArrayLike]) -> Recording:
        if isinstance(what, Mapping):
            return recording_from_arrays(what, model, options)
        return what if isinstance(what, Recording) else read_recording(Path(what), model, options or ReadOptions())

    empty = None if tare is None else read(tare)
    return identify_recording(read(data), model, settings or EstimatorSettings(), on_progress, tare=empty)


def recording_from_arrays(
    arrays: Mapping[str, ArrayLike], robot: RobotModel, options: ReadOptions | None = None
) -> Recording:
    """Make a recording of arrays in the robot's joint order; see :data:`ARRAYS`.

    Of the options, what is stated of the efforts counts.

    Raises:
        InvalidRecording: One is missing, has another shape, or numbers that this arm cannot have.
    """
    source = Path("arrays")
    for name in arrays:
        if name not in ARRAYS:
            raise InvalidRecording(source, f"the array '{name}'", "unknown", "t, q, tau and optionally v")
    for name in ("t", "q", "tau"):
        if name not in arrays:
            raise InvalidRecording(source, f"the array '{name}'", "missing", "t [s], q [rad], tau [Nm], optionally v")
    found = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in found.items():
        expected = (found["t"].size,) if name == "t" else (found["t"].size, robot.n)
        if array.shape != expected:
            raise InvalidRecording(source, f"the shape of '{name}'", array.shape, f"{expected} (samples, joints)")
    is_ns = np.issubdtype(found["t"].dtype, np.integer)
    stamps = stamps_of(source, found["t"], 1e-9 if is_ns else 1.0)
    kept, notices = cut_repeats(source, stamps)
    v = np.asarray(found["v"], dtype=float)[kept] if "v" in found else None
    q, tau = (np.asarray(found[name], dtype=float)[kept] for name in ("q", "tau"))
    stated = options or ReadOptions()
    stated = replace(stated, effort_sign=stated.effort_sign or 1.0)  # arrays are in joint direction
    recording = make_recording(source, robot, RawSamples(stamps[kept], q, v, tau, tuple(notices)), stated)
    return replace(recording, source="arrays")
