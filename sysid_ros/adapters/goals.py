"""Goals of the actions of a node: from their fields to their results, one at a time beside the executor."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node

from sysid_msgs.action import Identify
from sysid_ros.core.certification.authentication import AuthenticationKey
from sysid_ros.core.common.errors import Cancelled, SysidError
from sysid_ros.core.procedure import IdentificationErrorCode, IdentificationFailed, Phase, Progress
from sysid_ros.reports.folders import ESTIMATE, make_results_directory
from sysid_ros.reports.recordings.recording import RECORDING
from sysid_ros.reports.writer import folder_below
from sysid_ros.ros.conversions.authentication import sign
from sysid_ros.ros.conversions.common import message_of
from sysid_ros.ros.node import run_in_thread, spin_while
from sysid_ros.ros.parameters import NodeParameters, parameter

_ROUTINE = (
    IdentificationErrorCode.CANCELED,
    IdentificationErrorCode.INVALID_GOAL,
    IdentificationErrorCode.NO_WINDOWS,
    IdentificationErrorCode.NOT_IDENTIFIED,
)
"""Ends of a goal that belong to daily work."""
FEEDBACK_PERIOD = 1.0
"""Time between two messages of feedback that differ in their numbers alone [s]."""
ALIVE_PERIOD = 5.0
"""Longest time without a progress message [s]; then the last one is repeated, with its age."""
ANSWER_TIME = 0.2
"""How long the end of the node waits for the answer of its last goal to go out [s]."""


@dataclass(frozen=True)
class ResultParameters(NodeParameters):
    """Parameters of a node whose goals write files."""

    results_root: str = parameter("~/sysid_results", read_only=True)
    """Folder below which all results lie: goals and results_directory name folders in it, or are refused."""
    results_directory: str = parameter("")
    """Parent of the folder for goals that name none, named after the time; empty: no files."""
    record: bool = parameter(True)
    """Write recording.mcap with the other files."""

    def check(self) -> None:
        """Refuse a folder outside results_root."""
        super().check()
        if self.results_directory:
            folder_below(self.results_root, self.results_directory)


def prepare_folder(folder: Path) -> Path:
    """Make the folder of a goal, before anything moves for files that could not be written.

    Raises:
        SysidError: It cannot be made or written to, or holds the files of an earlier goal.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SysidError(f"the results folder {folder} cannot be used: {error.strerror or error}") from error
    for name in (ESTIMATE, RECORDING):
        if (folder / name).exists():
            raise SysidError(f"the results folder {folder} holds the {name} of an earlier goal; give another folder")
    return folder


class NewsFilter:
    """Decides which progress is reported at once, and which only now and then.

    Args:
        clock: Steady time [s].
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._last: tuple[object, ...] = ()
        self._told = -np.inf

    def is_news(self, progress: Progress) -> bool:
        """Return whether the phase, its text or the motion has changed, or the last report is old."""
        now, state = self._clock(), (progress.phase, progress.text, progress.trajectory)
        if state == self._last and now - self._told < FEEDBACK_PERIOD:
            return False
        self._last, self._told = state, now
        return True


class Goal:
    """A goal of an action; derived classes prepare it, carry it out, and know how their robot comes to rest.

    Args:
        logger: Log of the node.
        options: Parameters of the node.
        goal: The fields of the goal.
        is_cancelled: Whether it is to end.

    Attributes:
        action: Type of the action.
        unforeseen: Code of an error after the preparation that has none of its own.
        codes: Codes of errors; the first class that fits counts.
    """

    action: ClassVar[Any] = Identify
    unforeseen: ClassVar[IdentificationErrorCode] = IdentificationErrorCode.INTERNAL
    codes: ClassVar[tuple[tuple[type[SysidError], IdentificationErrorCode], ...]] = ()

    def __init__(self, logger: Any, options: ResultParameters, goal: Any, is_cancelled: Callable[[], bool]):
        self._logger, self._options, self._goal, self._is_cancelled = logger, options, goal, is_cancelled
        self._folder: Path | None = None
        self._report: Callable[[Progress], None] = lambda progress: None
        self._began = time.monotonic()

    @property
    def motion_time(self) -> float:
        """How long the robot has moved [s]."""
        raise NotImplementedError

    @property
    def elapsed(self) -> float:
        """Time since the beginning [s]."""
        return time.monotonic() - self._began

    def run(self, on_progress: Callable[[Progress], None]) -> Any:
        """Run the goal to its end and return its result, with the robot at rest, whatever happens.

        Args:
            on_progress: Called with every change.
        """
        self._report, code = on_progress, IdentificationErrorCode.INVALID_GOAL
        try:
            self._prepare()
            code = self.unforeseen
            result = self._carry_out()
        except Exception as error:  # noqa: BLE001 - a goal is answered after any error
            result = self._failure(self._as_failure(error, code))
        finally:
            self._end_recording()
        if self._folder is not None:
            result.results_directory = str(self._folder.absolute())
        return result

    def feedback(self, progress: Progress) -> Any:
        """Convert progress to feedback."""
        feedback = message_of(self.action.Feedback, progress, self)
        if self.action is Identify:
            feedback.trajectory_number, feedback.number_of_trajectories = progress.trajectory, progress.trajectories
        return feedback

    def _prepare(self) -> None:
        """Check the fields of the goal and make its folder, before anything moves."""
        raise NotImplementedError

    def _carry_out(self) -> Any:
        raise NotImplementedError

    def _end_recording(self) -> str:
        """Complete the recording, if there is one; return the fault, in words."""
        raise NotImplementedError

    def _make_folder(self, wanted: str) -> Path | None:
        root, own = self._options.results_root, self._options.results_directory
        if wanted:
            return prepare_folder(folder_below(root, wanted))
        return prepare_folder(make_results_directory(folder_below(root, own))) if own else None

    def _as_failure(self, error: Exception, code: IdentificationErrorCode | None = None) -> IdentificationFailed:
        """Return the failure for an error, with a code for an error of this package that has none of its own."""
        if isinstance(error, IdentificationFailed):
            return error
        if isinstance(error, SysidError):
            own = () if code is IdentificationErrorCode.INVALID_GOAL else self.codes
            codes = ((Cancelled, IdentificationErrorCode.CANCELED), *own)
            found = next((one for kind, one in codes if isinstance(error, kind)), code or self.unforeseen)
            return IdentificationFailed(found, str(error))
        return IdentificationFailed(IdentificationErrorCode.INTERNAL, f"internal error: {error!r}")

    def _failure(self, failure: IdentificationFailed, advice: str = "", **fields: Any) -> Any:
        """Log a failure and return it as a result; ends that belong to daily work are no errors."""
        unconfirmed = failure.stop_unconfirmed
        text = f"{failure}{advice}" if unconfirmed is None else f"{failure}. Watch the arm: {unconfirmed}{advice}"
        line = f"{failure.code.name}: {text}"
        if failure.code in _ROUTINE and unconfirmed is None:
            self._logger.warning(line)
        else:
            self._logger.error(line)
        result, code = self.action.Result, int(failure.code)
        return result(error_code=code, error_text=text, motion_time=self.motion_time, **fields)


Make = Callable[[Any, Callable[[], bool]], Goal]
"""Makes a goal of its fields and the request to end."""


class GoalServer:
    """Serves the actions of a node. Goals run in a thread, one at a time; a second one is refused.

    Every goal is accepted, for it is answered with a numbered code and a sentence, which a rejection lacks.

    Args:
        node: The node.
        key: Key that results which have a field for it are signed with; None without one.
        begin: Called before a goal, in the executor.
        end: Called after it, in the executor.
        done: Called with a goal that has ended, in its thread.
        headline: Part of a text of progress that is logged where it is new.
    """

    def __init__(
        self,
        node: Node,
        key: AuthenticationKey | None = None,
        begin: Callable[[], object] = lambda: None,
        end: Callable[[], object] = lambda: None,
        done: Callable[[Any], None] = lambda goal: None,
        headline: Callable[[str], str] = str,
    ):
        self._node, self._key, self._begin, self._end, self._done = node, key, begin, end, done
        self._headline = headline
        self._busy, self._stop = threading.Lock(), threading.Event()
        self._phase = "it begins"
        self._said = 0.0  # time of the last progress message, steady [s]
        self._told: tuple[float, Progress, Callable[[Progress], None]] | None = None  # since when, progress, receiver
        self._servers: list[ActionServer] = []

    def serve(self, action: Any, name: str, make: Make) -> None:
        """Offer an action."""

        async def execute(handle: ServerGoalHandle) -> Any:
            news = NewsFilter()

            def publish(goal: Goal, progress: Progress) -> None:
                if news.is_news(progress):
                    handle.publish_feedback(goal.feedback(progress))

            result = await self.run(action, make, handle.request, lambda: handle.is_cancel_requested, publish)
            if result.error_code == Identify.Result.NONE:
                handle.succeed()
            elif result.error_code == Identify.Result.CANCELED and handle.is_cancel_requested:
                handle.canceled()
            else:
                handle.abort()
            return result

        accept = lambda _: CancelResponse.ACCEPT  # noqa: E731
        self._servers.append(ActionServer(self._node, action, name, execute, cancel_callback=accept))

    async def run(
        self,
        action: Any,
        make: Make,
        request: Any,
        is_cancelled: Callable[[], bool] = lambda: False,
        publish: Callable[[Goal, Progress], None] = lambda goal, progress: None,
    ) -> Any:
        """Run a goal, made of the fields of a request, beside the executor and return its result.

        ``publish`` is called with the goal and its progress, at every change and now and then without one.
        """
        if not self._busy.acquire(blocking=False):
            text = f"another goal is running ({self._phase}); cancel it or wait for its end"
            return self._signed(action.Result(error_code=Identify.Result.BUSY, error_text=text))
        self._begin()
        try:
            return await run_in_thread(self._node, lambda: self._work(make, request, is_cancelled, publish))
        finally:
            self._end()
            self._busy.release()

    def say_alive(self) -> None:
        """Repeat the latest progress, in the log and to the client, after a while without news."""
        told, now = self._told, time.monotonic()
        if told is None or now - self._said < ALIVE_PERIOD:
            return
        self._said = now
        since, progress, on_progress = told
        if progress.phase != Phase.MOVING:
            self._node.get_logger().info(f"{progress.text}: for {now - since:.0f} s now")
        on_progress(progress)

    def close(self, seconds: float) -> None:
        """Cancel a running goal and wait, for some seconds, until the robot rests and the answer is out."""
        self._stop.set()
        spin_while(self._node, self._busy.locked, seconds)
        spin_while(self._node, lambda: True, ANSWER_TIME)

    def _work(
        self, make: Make, request: Any, is_cancelled: Callable[[], bool], publish: Callable[[Goal, Progress], None]
    ) -> Any:
        goal = make(request, lambda: self._stop.is_set() or is_cancelled())
        try:
            result = goal.run(self._reporter(lambda progress: publish(goal, progress)))
        finally:
            self._told = None
        self._done(goal)
        if result.error_code == Identify.Result.CANCELED and self._stop.is_set() and not is_cancelled():
            result.error_code = Identify.Result.INTERRUPTED
            result.error_text = (
                f"{self._node.get_name()} was asked to end before the goal was done ({result.error_text}): the suite "
                "ends, or a node that it needs has ended; the log of the launch names it"
            )
        return self._signed(result)

    def _reporter(self, on_progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
        def report(progress: Progress) -> None:
            now, told = time.monotonic(), self._told
            is_new = told is None or self._headline(progress.text) != self._headline(told[1].text)
            if is_new and progress.phase != Phase.MOVING:
                self._node.get_logger().info(progress.text)
            self._phase, self._said = progress.text, now
            self._told = (now if told is None or is_new else told[0], progress, on_progress)
            on_progress(progress)

        return report

    def _signed(self, result: Any) -> Any:
        if self._key is not None and hasattr(result, "authentication"):
            sign(result, self._key)
        return result
