"""The option ``--view`` of commands: the arm in a browser, live or as a replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.robot_files import find_settings
from sysid_ros.reports.recordings.runs import RecordedRun, read_run
from sysid_ros.reports.result import IdentificationResult, followed_motions
from sysid_ros.view.address import free_port
from sysid_ros.view.replay import FollowedPlan, Replay, Story
from sysid_ros.view.scene import ArmView


def followed_plans(recorded: RecordedRun, result: IdentificationResult) -> list[FollowedPlan]:
    """Return the plans that the arm followed, with their times since the first sample of a result."""
    if result.samples is None:
        return []
    start_ns = int(result.samples.stamps[0])
    motions = recorded.motions(start_ns)
    if result.reference_q is not None:
        motions = followed_motions(motions, result.samples.seconds, result.reference_q)
    return [
        FollowedPlan(
            one.trajectory,
            one.start if one.issued is None else one.issued,
            one.start,
            one.start + (one.trajectory.duration if one.followed is None else one.followed),
        )
        for one in motions
    ]


def open_replay(result: IdentificationResult, file: Path, model: str, port: str) -> Replay:
    """Show a result over time in a browser.

    Args:
        result: Of a recording, with its samples.
        file: The recording; its plans are shown, too, where it has some.
        model: The arm as it was named, beside whose settings meshes are looked for.
        port: Of ``--view``.
    """
    samples, history = result.samples, result.history
    if samples is None or len(samples) == 0:
        raise SysidError("--view: there are no samples to replay")
    try:
        recorded = read_run(file) if file.suffix == ".mcap" and file.is_file() else RecordedRun()
    except SysidError:  # a plan of another version: the replay goes without
        recorded = RecordedRun()
    # The history may end with the same estimate twice: at the last update, and at the end
    story = Story(
        seconds=samples.seconds,
        q=samples.q,
        update_times=history.time,
        bounds=np.stack([history.lower, history.values, history.upper], axis=1),
        final=result.estimate,
        plans=followed_plans(recorded, result),
        scene=recorded.plans[-1].scene if recorded.plans else Scene(),
    )
    view = ArmView(result.robot, free_port(port), find_settings(model).parent)
    return Replay(view, result.robot, story)
