"""Reads the samples of a file, whatever its form, and of files of one arm with known loads for its calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sysid_ros.core.estimation.calibration import (
    KnownLoad,
    LoadedRecording,
    empty_hand,
    reference_weight,
    with_known_mass,
)
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.bags import read_bag
from sysid_ros.reports.recordings.mcap import SAMPLES, holds, read_mcap
from sysid_ros.reports.recordings.options import (
    BAGS,
    InvalidRecording,
    ReadOptions,
    read_mass,
    require_recording,
    split_load,
)
from sysid_ros.reports.recordings.readers import Recording, Watch, read_all, with_velocity_error
from sysid_ros.reports.recordings.recording import GRIPPER, RECORDING
from sysid_ros.reports.recordings.tables import read_csv, read_npz


def read_recording(
    path: Path | str, robot: RobotModel, options: ReadOptions | None = None, watch: Watch = read_all
) -> Recording:
    """Read samples from a file, by its ending.

    Args:
        path: A recording of this suite (``.mcap``), a bag with joint states (a folder of rosbag2, ``.mcap``, ``.db3``,
            ``.bag``), or a table (``.csv``, ``.npz``).
        robot: The arm that was recorded.
        options: What the file may leave open.
        watch: Told how far it is, and may end it with the samples so far.

    Raises:
        InvalidRecording: The file is missing or cannot be used; the message has the place, the fault and the cure.
        ParameterOutOfRange: A scale is stated of a joint that the robot does not have.
    """
    file, options = Path(path), options or ReadOptions()
    suffix = file.suffix.lower()
    require_recording(file)
    if file.is_dir():
        return read_bag(file, robot, options, watch)
    if suffix == ".mcap" and holds(file, SAMPLES):
        for what in ("units", "joint_names", "effort_sign", "effort_scale"):
            if getattr(options, what):
                stated = f"{what.replace('_', ' ')} for a recording of this suite"
                raise InvalidRecording(file, stated, getattr(options, what), "nothing: it says that itself")
        return read_mcap(file, robot, options, watch)
    if suffix in BAGS:
        return read_bag(file, robot, options, watch)
    return read_csv(file, robot, options, watch) if suffix == ".csv" else read_npz(file, robot, options)


SERIAL, ROBOT = "serial", "robot"
"""Descriptions of a recording that say which arm it is of: its serial number, and the name of its model."""


@dataclass(frozen=True)
class KnownRecordings:
    """Recordings of one arm with known loads.

    Attributes:
        robot: The arm, with errors of velocity that hold in all of them.
        recordings: The recordings.
        warnings: What was found and mended, a sentence each.
    """

    robot: RobotModel
    recordings: tuple[LoadedRecording, ...]
    warnings: tuple[str, ...]


def read_recordings(
    texts: Sequence[str],
    robot: RobotModel,
    serial: str,
    options: ReadOptions | None = None,
    on_progress: Callable[[float], object] = lambda share: None,
    gripper: str = "",
) -> KnownRecordings:
    """Read recordings of one arm with known loads.

    Args:
        texts: ``FILE`` of the empty hand, or ``FILE=MASS+-TOLERANCE`` of a reference weight [kg].
        robot: The arm.
        serial: Its serial number; recordings that say that they are of another arm are refused.
        options: What the files leave open.
        on_progress: Called with the share of the files that is read.
        gripper: State of the gripper in all of them; empty where it is not stated. Recordings that name another one are
            refused.

    Raises:
        SysidError: One of them cannot be used; the message has the place, the fault and the cure.
    """
    loaded, warnings, computed, state = list[LoadedRecording](), list[str](), robot, gripper
    read = [read_load(text, robot) for text in texts]
    names = names_apart([path for path, _ in read])
    for number, ((path, load), name) in enumerate(zip(read, names, strict=True)):

        def watch(share: float, number: int = number) -> bool:
            on_progress((number + share) / len(texts))
            return True

        recording = read_recording(path, robot, options, watch)
        state = _require_one_arm(path, recording, robot, serial, state)
        warnings += [f"{name}: {sentence}" for sentence in (*recording.notices, *recording.caveats)]
        computed = with_velocity_error(computed, recording)
        loaded.append(LoadedRecording(name, recording.batches, load))
    return KnownRecordings(computed, tuple(loaded), tuple(warnings))


def names_apart(paths: Sequence[Path]) -> list[str]:
    """Return different names for files: the file's, with as many folders before it as that takes.

    A file ``recording.mcap`` of this suite is always named with its folder, which says which run it is of.
    """
    parts = [path.absolute().parts for path in paths]
    lengths = [2 if path.name == RECORDING else 1 for path in paths]
    while True:
        names = ["/".join(part[-length:]) for part, length in zip(parts, lengths, strict=True)]
        twins = [k for k, name in enumerate(names) if names.count(name) > 1 and lengths[k] < len(parts[k])]
        if not twins:
            return names
        for k in twins:
            lengths[k] += 1


def read_load(text: str, robot: RobotModel) -> tuple[Path, KnownLoad]:
    """Split ``FILE[=MASS[+-TOLERANCE]]`` into the file and the load of the hand.

    Raises:
        ParameterOutOfRange: The mass or its tolerance is no number.
    """
    path, mass = split_load(text)
    return path, empty_hand() if mass is None else reference_weight(robot, *mass)


def weighed(robot: RobotModel, mass: str | None) -> RobotModel:
    """Return the arm with a payload that has been on a scale, as ``MASS[+-TOLERANCE]`` [kg]; itself without that.

    Raises:
        SysidError: It is no number, or the payload prior has no such mass.
    """
    return with_known_mass(robot, *read_mass(mass)) if mass else robot


def _require_one_arm(path: Path, recording: Recording, robot: RobotModel, serial: str, gripper: str) -> str:
    said = recording.metadata or {}
    for key, what, expected in (
        (SERIAL, "the serial number of its arm", serial),
        (ROBOT, "the robot in it", robot.name),
    ):
        if said.get(key, expected) != expected:
            raise InvalidRecording(path, what, said[key], f"{expected}: one calibration is of one arm")
    if len(set(recording.payload_epochs)) > 1:
        allowed = "the same in the whole recording: make one of each"
        raise InvalidRecording(path, "what the hand holds", "announced to have changed", allowed)
    state = said.get(GRIPPER, "") or gripper
    if gripper and state != gripper:
        allowed = f"{gripper}, as stated or in the others: leave the gripper as it is while you calibrate"
        raise InvalidRecording(path, "the state of the gripper in it", state, allowed)
    return state
