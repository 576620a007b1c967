"""Advice on the next motion: a random search for one that determines the combinations the data leave undetermined.

A candidate swings a few joints while the others stand still in some posture. The best of many random candidates is then
simplified: joints that contribute little stop, and still joints whose posture matters little go to their home position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.identifiability.data import DETERMINED, ArmInformation, DataAnalysis
from sysid_ros.core.identifiability.wording import MINUS
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_DURATION = 5.0  # [s]
_SAMPLES = 24
_SPEED_SHARE = 0.5
"""Share of the joints' speed and acceleration limits a candidate uses; the rest is left to the planner."""
_CIRCLE = np.pi  # [rad], range of a joint without limits
_NEGLIGIBLE = 1e-3
"""Smallest singular value that is worth a number in the text."""


@dataclass(frozen=True)
class Swing:
    """A motion: joints swing about a posture, each with its own frequency and phase.

    Attributes:
        posture: Middle of the motion, (n,) [rad].
        amplitude: Amplitudes, (n,) [rad]; 0 for joints that stand still.
        rate: Angular frequencies, (n,) [rad/s].
        phase: Phases, (n,) [rad].
        duration: Length [s].
    """

    posture: Array
    amplitude: Array
    rate: Array
    phase: Array
    duration: float = _DURATION

    @property
    def speeds(self) -> Array:
        """Largest speeds, (n,) [rad/s]."""
        return self.amplitude * self.rate

    def states(self, samples: int = _SAMPLES) -> tuple[Array, Array, Array]:
        """Sample positions, velocities and accelerations at evenly spread times, each (samples, n)."""
        times = (np.arange(samples) + 0.5)[:, None] * self.duration / samples
        angle = self.rate * times + self.phase
        swing = self.amplitude * np.sin(angle)
        return (
            self.posture + swing,
            self.amplitude * self.rate * np.cos(angle),
            -(self.rate**2) * swing,
        )


@dataclass(frozen=True)
class Advice:
    """A motion that determines combinations the data leave undetermined.

    Attributes:
        motion: The motion.
        moving: Joints that move.
        postures: Still joints whose posture matters, with the position [rad].
        directions: Number of undetermined combinations, for which the motion was chosen.
        before: Singular value of the weakest combination from the data [-].
        after: The same with this motion in addition [-].
        determined: Number of combinations that would then be determined.
        text: The advice in words.
    """

    motion: Swing
    moving: tuple[str, ...]
    postures: tuple[tuple[str, float], ...]
    directions: int
    before: float
    after: float
    determined: int
    text: str


def advise(
    robot: RobotModel,
    analysis: DataAnalysis,
    source: ArmInformation,
    information: Array,
    recorded_speeds: Array | None = None,
    seed: int = 0,
) -> Advice | None:
    """Search for a motion that determines the undetermined combinations; collisions and torques are the planner's.

    Args:
        robot: The arm.
        analysis: Analysis of the data.
        source: Information of motions on the same unknown parameters.
        information: Information the analysis was computed from, (P, P).
        recorded_speeds: Largest speeds in the data, (n,) [rad/s], to name the joints that should move faster.
        seed: Seed of the candidates.

    Returns:
        The best motion found; None if the data determine everything already or none found helps.
    """
    missing = analysis.structure.count - analysis.determined
    if not missing:
        return None
    gain = _Gain(analysis, source, information, missing)
    rng = np.random.default_rng(seed)
    candidates = [_candidate(robot, rng) for _ in range(150)]
    best = max(candidates, key=gain.evaluate)
    if gain.evaluate(best) <= 1e-6:
        return None
    best, relevant = _simplify(robot, best, gain)
    after = gain.spectrum(best)
    moving = tuple(robot.joint_names[j] for j in np.flatnonzero(best.amplitude))
    postures = tuple((robot.joint_names[j], float(best.posture[j])) for j in relevant)
    result = Advice(
        motion=best,
        moving=moving,
        postures=postures,
        directions=missing,
        before=float(analysis.singular_values[-1]),
        after=float(after[-1]),
        determined=int(np.count_nonzero(after >= DETERMINED)),
        text="",
    )
    return replace(result, text=_sentence(robot, analysis, result, recorded_speeds))


class _Gain:
    """Information gain of motions along the weakest directions, and over all directions."""

    def __init__(self, analysis: DataAnalysis, source: ArmInformation, information: Array, count: int):
        self._chosen = list(analysis.structure.chosen)
        self._source = source
        self._known = np.asarray(information)[np.ix_(self._chosen, self._chosen)]
        self._weak, self._all = np.array(analysis.weakest(count)), np.array(analysis.directions)

    def _added(self, motion: Swing) -> Array:
        return self._source.of_motion(*motion.states(), motion.duration)[np.ix_(self._chosen, self._chosen)]

    def evaluate(self, motion: Swing) -> float:
        """Compute the gain in log det along the weakest directions [-], never negative."""
        before = self._weak @ self._known @ self._weak.T + np.eye(len(self._weak))
        added = self._weak @ self._added(motion) @ self._weak.T
        return float(np.linalg.slogdet(before + added)[1] - np.linalg.slogdet(before)[1])

    def spectrum(self, motion: Swing) -> Array:
        """Compute the singular values after the motion, falling, (nb,)."""
        total = self._known + self._added(motion)
        values = np.linalg.eigvalsh(self._all @ total @ self._all.T)[::-1]
        return np.asarray(np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)


def _candidate(robot: RobotModel, rng: np.random.Generator) -> Swing:
    limits, n = robot.limits, robot.n
    lower = np.where(np.isfinite(limits.q_lower), limits.q_lower, -_CIRCLE)
    upper = np.where(np.isfinite(limits.q_upper), limits.q_upper, _CIRCLE)
    posture = robot.home.copy() if rng.random() < 0.2 else rng.uniform(lower, upper)
    moving = rng.choice(n, size=int(rng.integers(1, n + 1)), replace=False)
    room = 0.9 * np.minimum(posture - lower, upper - posture)
    amplitude, rate = np.zeros(n), np.ones(n)
    amplitude[moving] = np.clip(np.minimum(0.8 * rng.uniform(0.4, 1.0, moving.size), room[moving]), 0.02, None)
    size = np.maximum(amplitude, 1e-9)
    fastest = np.minimum(_SPEED_SHARE * limits.v_max / size, np.sqrt(_SPEED_SHARE * limits.a_max / size))
    # At least one swing within the motion, at most as many as the samples resolve.
    rate[moving] = np.clip(fastest[moving] * rng.uniform(0.6, 1.0, moving.size), 2 * np.pi / _DURATION, 12.0)
    amplitude = np.minimum(amplitude, np.minimum(limits.v_max / rate, limits.a_max / rate**2) * _SPEED_SHARE)
    amplitude[room <= 0.02] = 0.0
    return Swing(posture, amplitude, rate, rng.uniform(0.0, 2 * np.pi, n))


def _simplify(robot: RobotModel, motion: Swing, gain: _Gain) -> tuple[Swing, list[int]]:
    """Stop joints and drop postures of little effect; return the still joints whose posture matters."""
    wanted = 0.9 * gain.evaluate(motion)
    for joint in np.flatnonzero(motion.amplitude):
        amplitude = motion.amplitude.copy()
        amplitude[joint] = 0.0
        simpler = replace(motion, amplitude=amplitude)
        if amplitude.any() and gain.evaluate(simpler) >= wanted:
            motion = simpler
    relevant = []
    for joint in np.flatnonzero(motion.amplitude == 0.0):
        posture = motion.posture.copy()
        posture[joint] = robot.home[joint]
        simpler = replace(motion, posture=posture)
        if gain.evaluate(simpler) >= wanted:
            motion = simpler
        else:
            relevant.append(int(joint))
    return motion, relevant


def _sentence(robot: RobotModel, analysis: DataAnalysis, advice: Advice, recorded: Array | None) -> str:
    index = [robot.joint_names.index(name) for name in advice.moving]
    speeds = advice.motion.speeds[index]
    text = f"moving {_list(advice.moving)} at up to {_list([f'{speed:.2g}' for speed in speeds])} rad/s"
    if recorded is not None:
        faster = [name for name, j, speed in zip(advice.moving, index, speeds, strict=True) if speed > recorded[j]]
        text += f" (faster than so far: {', '.join(faster)})" if faster else ""
    if advice.postures:
        text += f" with {_list([f'{name} at {value:.2f} rad'.replace('-', MINUS) for name, value in advice.postures])}"
    extra = advice.determined - analysis.determined
    text += f" for {advice.motion.duration:g} s would "
    text += (
        f"determine {extra} more of them" if extra > 0 else "add information, but not enough to determine another one"
    )
    if advice.after > max(_NEGLIGIBLE, 1.01 * advice.before):
        text += (
            f"; the weakest would be known {advice.after:.2g} instead of {advice.before:.2g} times as well as before"
        )
    return text


def _list(words: tuple[str, ...] | list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
