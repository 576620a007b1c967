"""Explains infeasible data: which single assumption, changed least, would make them feasible.

Each hypothesis changes one assumption and leaves all others as they are. Where the rows are linear in the change, one
linear program finds the smallest that makes all rows feasible; lag, tilt and the time of a change of the payload take
several. Shared errors count for each row separately here, so "feasible" is necessary, not sufficient. A hypothesis that
makes data feasible is a hint, never a guarantee, and never leads to bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

import numpy as np
from scipy.optimize import linprog

from sysid_ros.core.common.errors import Cancelled
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.relaxed_rows import Change, RelaxedRows, join_blocks
from sysid_ros.core.estimation.windows.model import tilt_axes
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel

LAGS = np.array([2, 5, 8, 12, 16, 20, 25, 30, 40, 50]) * 1e-3
"""Lags and leads of the torque that are tried first [s]."""
_SMALL = 1e-9


class Assumption(Enum):
    """The assumption that a hypothesis changes."""

    FRICTION = "friction"
    EFFORT_SIGN = "effort_sign"
    GRAVITY = "gravity_direction"
    TORQUE_LAG = "torque_lag"
    PAYLOAD_CHANGE = "payload_change"
    TORQUE_GAIN = "torque_gain"
    TORQUE_OFFSET = "torque_offset"
    PAYLOAD_PRIOR = "payload_prior"


@dataclass(frozen=True)
class Kind:
    """Wording and units of a hypothesis.

    Attributes:
        unit: Unit of the change; empty where there is no amount.
        usual: The largest change that would be no surprise; changes are ranked in units of it [unit].
        sentence: The sentence, with ``{joint}``, ``{amount}`` and ``{detail}``.
        check: A check that would confirm it.
        shown: Unit in which the best amount is shown; empty where it has no meaning.
        scale: An amount in it per amount in the unit [-].
    """

    unit: str
    usual: float
    sentence: str
    check: str
    shown: str = ""
    scale: float = 1.0


KINDS = {
    Assumption.FRICTION: Kind(
        "Nm",
        1.0,
        "the friction of {joint} were {amount:.2g} Nm beyond its box ({detail})",
        "move {joint} alone, slowly, both ways: half the difference of the torques is its friction",
        "Nm",
    ),
    Assumption.EFFORT_SIGN: Kind(
        "",
        1.0,
        "the sign of the efforts of {joint} were turned round",
        "hold the arm still: in joint direction the effort is the torque against gravity",
    ),
    Assumption.GRAVITY: Kind(
        "rad",
        np.radians(1.0),
        "gravity were tilted by {detail}",
        "put a level on the base, or set `gravity` for the mount",
        "deg",
        np.degrees(1.0),
    ),
    Assumption.TORQUE_LAG: Kind(
        "s",
        0.01,
        "the torques {detail}",
        "compare the stamps of efforts and positions in a fast motion; the setting torque_lag takes a lag into account",
        "ms",
        1e3,
    ),
    Assumption.PAYLOAD_CHANGE: Kind(
        "s",
        1.0,
        "the payload changed {detail} after the first sample",
        "look whether something was gripped, lost or touched then; split the recording there",
    ),
    Assumption.TORQUE_GAIN: Kind(
        "-",
        0.05,
        "the torque gain of {joint} were {detail}",
        "hold a known weight: the torque sensor must show its moment",
        "%",
        100.0,
    ),
    Assumption.TORQUE_OFFSET: Kind(
        "Nm",
        1.0,
        "the torque offset of {joint} were {detail}",
        "turn {joint} by 180 degrees about gravity, or zero its sensor with the arm upright",
        "Nm",
    ),
    Assumption.PAYLOAD_PRIOR: Kind(
        "-",
        0.5,
        "the hand held {detail}, more than assumed",
        "weigh the payload; if it is heavier, choose a prior that holds it (--prior, payload_priors)",
    ),
}
"""Of every assumption; of friction and offset ``usual`` is a share of the torque limit, see :func:`usual_change`."""
FRICTION_USUAL, OFFSET_USUAL = 0.05, 0.01
"""Shares of the torque limit that one would not wonder at [-]."""


@dataclass(frozen=True)
class Hypothesis:
    """One changed assumption with which the data are feasible.

    Attributes:
        assumption: The changed assumption.
        joint: The joint it is about; None for all, or none.
        amount: The smallest change that makes the data feasible [unit of its kind]; of a change of the payload, the
            middle of the times at which it may have happened [s].
        change: The same in units of the usual [-]; hypotheses are ranked by it times the misfit.
        detail: The part of the sentence that depends on the data.
        misfit: Least scale of all error bounds with which the data would be feasible, with the best change [-]; far
            below 1 the hypothesis explains more than it must.
        best: The best change, in size [unit]; with the smallest one the data only just agree. None where it has no
            meaning, as of a prior, which fits better the wider it is.
    """

    assumption: Assumption
    joint: str | None
    amount: float
    change: float
    detail: str
    misfit: float
    best: float | None

    @property
    def rank(self) -> float:
        """Rank; hypotheses with small ones come first [-].

        With the right change the misfit falls far below 1; with one that can only just explain the data, it does not.
        """
        return self.change * self.misfit

    @property
    def text(self) -> str:
        """The hypothesis in a sentence: the smallest change and the size of the best one."""
        kind = KINDS[self.assumption]
        words = kind.sentence.format(joint=self.joint or "all joints", amount=self.amount, detail=self.detail)
        more = ""
        if kind.shown and self.best is not None:
            more = f"; a change of {kind.scale * abs(self.best):.2g} {kind.shown} fits best"
        return f"the data agree if {words}{more}"

    @property
    def unit(self) -> str:
        """Unit of amount and best."""
        return KINDS[self.assumption].unit

    @property
    def check(self) -> str:
        """A check that would confirm it."""
        return KINDS[self.assumption].check.format(joint=self.joint or "a joint")


@dataclass(frozen=True)
class Explanation:
    """Hypotheses about infeasible data, first small changes with which the data agree well.

    Attributes:
        misfit: Least scale of all error bounds with which the data would be feasible as they are [-]; above 1 they are
            not. At most 1 where only shared errors prove them infeasible.
        hypotheses: All with which the data are feasible, ranked.
        windows: Number of windows examined.
        untried: Assumptions of which not every change was tried because of cancellation.
    """

    misfit: float
    hypotheses: tuple[Hypothesis, ...]
    windows: int
    untried: tuple[Assumption, ...] = ()

    @property
    def text(self) -> str:
        """The hypotheses and their limits, in sentences."""
        stopped = ""
        if self.untried:
            names = ", ".join(one.value.replace("_", " ") for one in self.untried)
            stopped = f"Stopped on request before all of these were tried: {names}. "
        if not self.hypotheses:
            return stopped + (
                "None of the hypotheses tried makes the data feasible by itself."
                if stopped
                else "No single changed assumption makes the data feasible: several may be wrong, or one that is not "
                "tried."
            )
        text = (
            "Each hypothesis changes one assumption by as little as makes the data feasible; small changes come first, "
            "and those with which the data could agree far better than they must"
        )
        if self.misfit <= 1.0:
            text += " (here: feasible with all error bounds 10 % smaller than the data as they are need)"
        return f"{stopped}{text}. They show where to look; none is proven, and no bounds follow from them."


def explain_inconsistency(
    robot: RobotModel,
    settings: EstimatorSettings,
    blocks: Iterable[SampleBlock],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Explanation | None:
    """Try one hypothesis after the other.

    Args:
        robot: The arm as assumed.
        settings: Settings of the estimation, of a payload.
        blocks: The samples.
        is_cancelled: Polled before every linear program; hypotheses found by then are kept.

    Returns:
        The explanation; None without windows, or if cancelled before anything was tried.
    """
    samples = join_blocks(blocks)
    if samples is None or is_cancelled():
        return None
    data = RelaxedRows.collect(robot, settings, samples)
    if data is None:
        return None
    data = replace(data, before_solving=lambda: _require_time(is_cancelled))
    tried: list[Hypothesis] = []
    untried = list(_MAKERS)
    base = np.nan
    with suppress(Cancelled):
        base = data.misfit(data.r)
        for assumption in _MAKERS:
            for one in try_assumption(data, assumption, base):
                tried.append(one)  # results before a cancellation are kept
            untried.remove(assumption)
    if np.isnan(base):
        return None
    ranked = sorted(tried, key=lambda one: one.rank)
    return Explanation(base, tuple(ranked), data.windows, tuple(untried))


def try_assumption(data: RelaxedRows, assumption: Assumption, misfit: float) -> Iterator[Hypothesis]:
    """Yield the smallest changes of an assumption that make rows with this misfit feasible."""
    yield from _MAKERS[assumption](data, min(1.0, 0.9 * misfit))


def _require_time(is_cancelled: Callable[[], bool]) -> None:
    if is_cancelled():
        raise Cancelled


def usual_change(data: RelaxedRows, assumption: Assumption, joint: int) -> float:
    """Return the largest change that would be no surprise, in the unit of the amount."""
    share = {Assumption.FRICTION: FRICTION_USUAL, Assumption.TORQUE_OFFSET: OFFSET_USUAL}.get(assumption)
    return KINDS[assumption].usual if share is None else share * float(data.robot.limits.tau_continuous[joint])


def _try_signs(data: RelaxedRows, scale: float) -> Iterator[Hypothesis]:
    """Reverse the efforts of all joints, then of each."""
    for joint in (None, *range(data.robot.n)):
        chosen = np.ones(len(data.r), dtype=bool) if joint is None else data.joint == joint
        misfit = data.misfit(np.where(chosen, data.r - 2.0 * data.torque, data.r))
        if misfit <= scale:
            name = None if joint is None else data.robot.joint_names[joint]
            yield Hypothesis(Assumption.EFFORT_SIGN, name, 1.0, 1.0, "", misfit, 1.0)


def _try_prior(data: RelaxedRows, scale: float) -> Iterator[Hypothesis]:
    """Let the payload be heavier than its prior allows, and leave it by the same share on every other side."""
    count, size = data.y.shape[1], data.allowed[:, None]
    free, known = data.y / size, data.b / size
    right, wide = data.r / data.allowed, np.zeros((len(data.r), 1))
    sides = np.concatenate([np.eye(count), np.zeros((count, known.shape[1])), -np.ones((count, 1))], axis=1)
    other = np.concatenate([-np.eye(count), sides[:, count:]], axis=1)
    other[0, -1] = 0.0
    a = np.concatenate([np.block([[free, known, wide], [-free, -known, wide]]), sides, other])
    limits = np.concatenate([scale + right, scale - right, np.ones(2 * count)])
    bounds = [(None, None)] * count + [(-1.0, 1.0)] * known.shape[1] + [(0.0, None)]
    found = linprog(np.append(np.zeros(a.shape[1] - 1), 1.0), a, limits, bounds=bounds, method="highs")
    if found.status != 0 or found.x[0] <= 1.0 + _SMALL:  # without more mass, something else is wrong
        return
    share, box = float(found.x[-1]), data.prior
    detail = f"{box.center[0] + box.radius[0] * found.x[0]:.3g} kg"
    misfit, _ = data.best(data.r, data.y)
    yield _made(data, Assumption.PAYLOAD_PRIOR, None, share, detail, misfit, None)


def _try_gains(data: RelaxedRows, scale: float) -> Iterator[Hypothesis]:
    """Change the gain of the torque of one joint: the true torque is ``(1 + g)`` times the measured one."""
    for joint in range(data.robot.n):
        gain = np.where(data.joint == joint, -data.torque, 0.0)
        least = data.least(Change.both_ways(data.r, gain), scale)
        if least is not None:
            g = float(least[0][0] - least[0][1])
            misfit, best = data.best(data.r, gain[:, None])
            # The message shows the sensor's reading of a true torque, which is the inverse.
            detail = f"{1.0 / max(1.0 + g, 1e-3):.3g}"
            yield _made(data, Assumption.TORQUE_GAIN, joint, g, detail, misfit, float(best[0]))


def _try_offsets(data: RelaxedRows, scale: float) -> Iterator[Hypothesis]:
    box = data.robot.theta_box
    for joint in range(data.robot.n):
        gain = np.where(data.joint == joint, data.seconds, 0.0)
        least = data.least(Change.both_ways(data.r, gain), scale)
        if least is not None:
            beyond = float(least[0][0] - least[0][1])
            entry = INERTIAL * data.robot.n + FRICTION * joint + 3
            total = beyond + float(box.upper[entry] if beyond > 0.0 else box.lower[entry])
            misfit, best = data.best(data.r, gain[:, None])
            yield _made(data, Assumption.TORQUE_OFFSET, joint, beyond, f"{total:.2g} Nm", misfit, float(best[0]))


def _try_friction(data: RelaxedRows, scale: float) -> Iterator[Hypothesis]:
    for joint in range(data.robot.n):
        chosen = data.joint == joint
        coulomb, viscous = np.where(chosen, data.sign, 0.0), np.where(chosen, data.travel, 0.0)
        gains = np.stack([coulomb, -coulomb, viscous, -viscous], axis=1)
        widens = np.zeros_like(gains)
        widens[:, 0] = np.where(chosen, data.unsure, 0.0)
        lower, upper = (
            data.robot.friction(side)[joint] for side in (data.robot.theta_box.lower, data.robot.theta_box.upper)
        )
        speed = float(data.speed[joint])
        limits = np.array([np.inf, lower[0], np.inf, lower[1]])  # friction never drives
        least = data.least(Change(data.r, gains, widens, np.array([1.0, 1.0, speed, speed]), limits), scale)
        if least is None:
            continue
        parts = least[0]
        amount = float(parts @ [1.0, 1.0, speed, speed])
        ends = [_end("F_c", "Nm", (lower[0], upper[0]), parts[0] - parts[1])]
        ends += [_end("F_v", "Nm s/rad", (lower[1], upper[1]), parts[2] - parts[3])]
        misfit, best = data.best(data.r, np.stack([coulomb, viscous], axis=1))
        detail = ", ".join(text for text in ends if text)
        most = float(np.abs(best) @ [1.0, speed])
        yield _made(data, Assumption.FRICTION, joint, amount, detail, misfit, most)


def _end(name: str, unit: str, box: tuple[float, float], beyond: float) -> str:
    """Describe the value that a parameter would need beyond its box; empty where it may stay inside."""
    if abs(beyond) <= _SMALL:
        return ""
    side = f"up to {box[1] + beyond:.2g}" if beyond > 0.0 else f"down to {max(box[0] + beyond, 0.0):.2g}"
    return f"{name} {side} {unit}"


def _try_tilt(data: RelaxedRows, scale: float) -> Iterator[Hypothesis]:
    """Tilt gravity; its product with the target is linear about the target of the round before."""
    strength = float(np.linalg.norm(data.robot.gravity))
    target, along, least = data.prior.center, 0.0, None
    for _ in range(3):
        columns = data.tilt + data.tilted @ (target - data.prior.center)[: data.tilted.shape[2]]
        across = columns[:, :2]
        r = data.r + along * columns[:, 2]
        gains = np.concatenate([across, -across], axis=1)
        change = Change(r, gains, np.zeros_like(gains), np.ones(4), np.full(4, strength))
        least = data.least(change, scale)
        if least is None:
            return
        vector, target = least[0][:2] - least[0][2:], least[1]
        along = strength - float(np.sqrt(max(strength**2 - float(vector @ vector), 0.0)))
    angle = float(np.arcsin(min(np.linalg.norm(vector) / strength, 1.0)))
    axes = tilt_axes(data.robot)
    axis = np.cross(axes[2], axes[0] * vector[0] + axes[1] * vector[1])
    axis = axis / max(float(np.linalg.norm(axis)), 1e-12)
    words = ", ".join(f"{value:+.2f}" for value in axis.tolist())
    detail = f"{np.degrees(angle):.2g} deg about ({words}) of the base frame"
    misfit, best = data.best(r, across)
    most = float(np.arcsin(min(np.linalg.norm(best) / strength, 1.0)))
    yield _made(data, Assumption.GRAVITY, None, angle, detail, misfit, most)


def _try_lag(data: RelaxedRows, scale: float) -> Iterator[Hypothesis]:
    """Read the torques of all joints earlier or later: the smallest lag, and the smallest lead, that will do."""
    for side, word in ((1.0, "lagged behind the positions"), (-1.0, "were ahead of the positions")):
        misfits = np.array([data.misfit(data.r + data.lagged(side * lag)) for lag in LAGS])
        k = int(np.argmin(misfits))
        if misfits[k] > scale:
            continue
        first = int(np.argmax(misfits <= scale))
        low, high = float(LAGS[first - 1]) if first else 0.0, float(LAGS[first])
        for _ in range(4):
            middle = 0.5 * (low + high)
            is_feasible = data.misfit(data.r + data.lagged(side * middle)) <= scale
            low, high = (low, middle) if is_feasible else (middle, high)
        detail = f"{word} by {1e3 * high:.2g} ms"
        yield _made(data, Assumption.TORQUE_LAG, None, side * high, detail, float(misfits[k]), side * float(LAGS[k]))


def _try_change(data: RelaxedRows, scale: float) -> Iterator[Hypothesis]:
    """Let the payload be another one after some time, with everything else the same."""
    number = np.arange(len(data.r)) // data.robot.n
    longest = _bisect(lambda k: data.misfit(data.r, number < k) <= scale, data.windows)
    last = data.windows - _bisect(lambda k: data.misfit(data.r, number >= data.windows - k) <= scale, data.windows)
    # The window of the change itself may fit neither payload.
    if last - longest > 1 or last <= 0 or longest >= data.windows:
        return
    is_between = last > longest
    middle = last if is_between else (longest + last) // 2
    is_late = (number >= middle)[:, None]
    second = np.where(is_late, data.y, 0.0)
    both = replace(data, y=np.where(is_late, 0.0, data.y), b=np.concatenate([second, data.b], axis=1))
    misfit = both.misfit(data.r, number != longest if is_between else None)
    if misfit > scale:
        return
    starts, stops = data.spans[:: data.robot.n].T
    low = float(starts[longest] if is_between else starts[last])
    high = float(stops[longest] if is_between else starts[min(longest, data.windows - 1)])
    when = 0.5 * (low + high)
    early, later = f"{low:.2f}", f"{high:.2f}"
    place = f"{early} s" if early == later else f"between {early} and {later} s"
    yield replace(_made(data, Assumption.PAYLOAD_CHANGE, None, when, place, misfit, when), change=1.0)


_MAKERS: Mapping[Assumption, Callable[[RelaxedRows, float], Iterator[Hypothesis]]] = MappingProxyType({
    Assumption.EFFORT_SIGN: _try_signs,
    Assumption.PAYLOAD_PRIOR: _try_prior,
    Assumption.TORQUE_GAIN: _try_gains,
    Assumption.TORQUE_OFFSET: _try_offsets,
    Assumption.FRICTION: _try_friction,
    Assumption.GRAVITY: _try_tilt,
    Assumption.TORQUE_LAG: _try_lag,
    Assumption.PAYLOAD_CHANGE: _try_change,
})  # fmt: skip
"""What tries the changes of each assumption, in this order: of rows, and the scale of all error bounds."""


def _bisect(is_feasible: Callable[[int], bool], count: int) -> int:
    """Return the largest number from 1 to ``count`` that is feasible, where all smaller ones are; 0 if none is."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_feasible(middle) else (low, middle - 1)
    return low


def _made(
    data: RelaxedRows, assumption: Assumption, joint: int | None, amount: float, detail: str, misfit: float,
    best: float | None,
) -> Hypothesis:  # fmt: skip
    name = None if joint is None else data.robot.joint_names[joint]
    return Hypothesis(
        assumption, name, amount, abs(amount) / usual_change(data, assumption, joint or 0), detail, misfit, best
    )
