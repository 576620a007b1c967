"""Replays a recording in the scene: a slider for the time, and the bounds of the payload by then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.view.scene import ArmView

Array = NDArray[np.float64]

FRAME = 0.04
"""Time between two pictures [s]."""
PATH_POINTS = 300
PLAN_POINTS = 60
"""Points of the path of one plan."""


@dataclass(frozen=True)
class FollowedPlan:
    """A plan that the arm followed; times since the first sample [s].

    Attributes:
        trajectory: The plan.
        known: When it was made.
        start: When the arm began to follow it.
        end: When the arm did not follow it any more.
    """

    trajectory: Trajectory
    known: float
    start: float
    end: float


@dataclass(frozen=True)
class Story:
    """What there is to replay.

    Attributes:
        seconds: Times of the samples, (N,) [s].
        q: Positions, (N, n) [rad].
        update_times: Times of the estimates, (K,) [s].
        bounds: Lower bounds, point estimates, upper bounds, (K, 3, 10).
        final: The last estimate; what does not change with time is taken from it.
        plans: Plans that were followed, in their order.
        scene: What surrounded the arm.
    """

    seconds: Array
    q: Array
    update_times: Array
    bounds: Array
    final: ParameterEstimate
    plans: Sequence[FollowedPlan] = ()
    scene: Scene = Scene()

    def posture(self, at: float) -> Array:
        """Return the positions at a time [s], between the samples, (n,) [rad]."""
        return np.array([np.interp(at, self.seconds, column) for column in self.q.T])

    def plans_at(self, at: float) -> tuple[int | None, int | None]:
        """Return which plan was followed at a time [s] and which waited to be, as places in ``plans``."""
        followed = [k for k, plan in enumerate(self.plans) if plan.start <= at < plan.end]
        waiting = [k for k, plan in enumerate(self.plans) if plan.known <= at < plan.start]
        return (followed[-1] if followed else None), (waiting[0] if waiting else None)

    def estimate(self, at: float) -> ParameterEstimate | None:
        """Return the estimate at a time [s]; None before the first update."""
        k = int(np.searchsorted(self.update_times, at, side="right")) - 1
        if k < 0:
            return None
        if k == len(self.update_times) - 1:
            return self.final
        lower, values, upper = self.bounds[k]
        is_consistent = bool(np.all(np.isfinite(lower) & np.isfinite(upper)))
        return replace(
            self.final, values=values, lower=lower, upper=upper, is_consistent=is_consistent,
            data_seconds=float(self.update_times[k]), number_of_windows=0,
        )  # fmt: skip


class Replay:
    """Controls and state of a replay in a ``view``.

    Args:
        view: Where it is shown.
        robot: The arm.
        story: What is replayed.
    """

    def __init__(self, view: ArmView, robot: RobotModel, story: Story):
        self.view, self._story = view, story
        self._shown: int | None = None
        self._end = round(float(story.seconds[-1]), 3)
        gui = view.server.gui
        with gui.add_folder("Replay"):
            self._play = gui.add_checkbox("play", True)
            self._speed = gui.add_slider("speed", 0.1, 4.0, 0.1, 1.0)
            step = max(round(self._end / 1000.0, 3), 0.001)
            self._slider = gui.add_slider("time [s]", 0.0, self._end, step, 0.0)
        self._slider.on_update(lambda _: self.show(self._slider.value))
        poses = BodyPoses(robot)
        picked = np.linspace(0, len(story.q) - 1, min(PATH_POINTS, len(story.q))).astype(int)
        self._way = poses.tool_path(story.q[picked])
        self._paths = [
            poses.tool_path(plan.trajectory.sample(np.linspace(0.0, plan.trajectory.duration, PLAN_POINTS))[0])
            for plan in story.plans
        ]
        self._plans: tuple[int | None, int | None] | None = None
        with gui.add_folder("Plans", visible=bool(story.plans)):
            self._words = gui.add_markdown("")
        view.show_scene(story.scene)
        is_known = np.isfinite(story.bounds).all(axis=(1, 2))
        view.show_history(story.update_times[is_known], story.bounds[is_known])
        self.show(0.0)

    @property
    def time(self) -> float:
        """Time that is shown [s]."""
        return float(self._slider.value)

    def show(self, at: float) -> None:
        """Show a time [s]."""
        self.view.show_posture(self._story.posture(at))
        self._show_plans(at)
        k = int(np.searchsorted(self._story.update_times, at, side="right"))
        if k != self._shown:
            self._shown = k
            self.view.draw_payload(self._story.estimate(at))

    def _show_plans(self, at: float) -> None:
        """Show the plan that was followed and the one that waited; without any the way of the tool."""
        chosen = self._story.plans_at(at)
        if chosen == self._plans:
            return
        self._plans = chosen
        followed, waiting = (None if k is None else self._paths[k] for k in chosen)
        if not self._story.plans:
            self.view.show_plans(self._way)
            return
        self.view.show_plans(followed, waiting)
        words = ["at rest" if chosen[0] is None else f"follows plan {chosen[0] + 1} of {len(self._paths)}"]
        if chosen[1] is not None:
            words.append(f"plan {chosen[1] + 1} waits")
        self._words.content = "; ".join(words)

    def run(self, is_ended: Callable[[], bool] = lambda: False) -> None:
        """Play until it is ended; begins again after the end."""
        last = time.monotonic()
        while not is_ended():
            time.sleep(FRAME)
            now = time.monotonic()
            passed, last = now - last, now
            if self._play.value and self.view.is_watched:
                at = self.time + passed * float(self._speed.value)
                self._slider.value = 0.0 if at >= self._end else at
