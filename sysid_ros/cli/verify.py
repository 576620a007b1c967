"""Re-verifies certified plans from scratch, and prints the margins of the control law: ``sysid verify FILE``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.terminal import ProgressDisplay, hanging, make_table, show, watching
from sysid_ros.core.certification.assumptions import robot_hash
from sysid_ros.core.certification.certificate import Margin
from sysid_ros.core.certification.conditions import Conditions, compare_conditions, describe_conditions
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.recheck import BoundRechecker, check_sequence, recheck
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.control.sampled_loop import LoopCase, LoopMargins, SampledLoop
from sysid_ros.core.control.settings import ROBUST, RobustSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.runs import read_plans

_HEADINGS = ("plan", "after", "issued [s]", "tightest margin", "where, when", "result")


@dataclass(frozen=True)
class CheckedPlan:
    """What the check of one plan found.

    Attributes:
        plan: The plan.
        tightest: Its smallest margin; None where it could not be computed.
        problems: What does not hold, a sentence each.
        margins: Margins of the control law at its start, with the nominal payload in the hand; None of other laws, and
            where something does not hold.
        notes: Open questions, a sentence each.
        conditions: What it is proven for, in words.
    """

    plan: CertifiedPlan
    tightest: Margin | None
    problems: tuple[str, ...]
    margins: LoopMargins | None = None
    notes: tuple[str, ...] = ()
    conditions: str = ""

    @property
    def holds(self) -> bool:
        """Whether everything holds."""
        return not self.problems

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row in the table."""
        plan, margin = self.plan, self.tightest
        tightest, where = "-", "-"
        if margin is not None:
            tightest = f"{margin.limit.value} {margin.value:.4f} {margin.limit.margin_unit}"
            where = f"{margin.place}, {margin.time:.3f} s"
        return (
            plan.plan_id[:8],
            "rest" if plan.predecessor is None else plan.predecessor[:8],
            f"{plan.certificate.issued_at:.3f}",
            tightest,
            where,
            "HOLDS" if self.holds else "DOES NOT HOLD",
        )


def verify_plans(
    plans: Sequence[CertifiedPlan],
    model: str | None = None,
    encloses_terms: bool = False,
    known: Conditions | None = None,
) -> Iterator[CheckedPlan]:
    """Check plans again in full, one after the other.

    Args:
        plans: The plans in the order they were issued.
        model: Name or settings file of the robot; None takes the name in each plan, with the joints and the payload
            prior that its certificate is for.
        encloses_terms: Whether limits must be kept with tracking bounds that are proven throughout, too; of plans that
            say they are, that is always proven.
        known: What else is known of the arm, to compare the plans with.

    Raises:
        ModelError: The robot is not known here.
    """
    tools: dict[tuple[str, str], tuple[RobotModel, list[BoundRechecker]]] = {}
    for plan, in_sequence in zip(plans, check_sequence(plans), strict=True):
        kind = (model, "") if model else (plan.robot_name, plan.certificate.robot_hash)
        if kind not in tools:
            robot = load_robot(model) if model else _robot_of(*kind)
            tools[kind] = robot, [BoundRechecker(robot, encloses) for encloses in (False, True)]
        robot, rechecks = tools[kind]
        contradictions, notes = compare_conditions(robot, plan, known or Conditions())
        problems, margins = [*in_sequence, *contradictions], list[Margin]()
        for bounds in rechecks[: 1 + (encloses_terms or plan.certificate.is_proven_throughout)]:
            followed = bounds.check(plan)
            if bounds.encloses_terms and bounds.latest is None:
                problems += [f"not proven throughout: {text}" for text in followed]
                continue
            found = recheck(robot, plan, bound=bounds.latest, takes_larger=bounds.encloses_terms)
            proof = "with a bound that is proven throughout, " if bounds.encloses_terms else ""
            problems += [proof + text for text in (*found.problems, *followed) if text not in problems]
            margins += [] if found.verification is None else found.verification.margins.values()
        tightest = min(margins, key=lambda margin: margin.value, default=None)
        loop = None if problems else _margins_at_start(robot, plan)
        conditions = describe_conditions(robot, plan)
        yield CheckedPlan(plan, tightest, tuple(problems), loop, tuple(notes), conditions)


def _robot_of(name: str, wanted: str) -> RobotModel:
    """Load the robot of a name that has a hash, with elastic joints or another payload prior; else by its name."""
    robot = load_robot(name)
    if robot_hash(robot) == wanted:
        return robot
    priors = ("", *(f":{one}" for one in robot.payload_priors))
    for words in (f"{name}{joints}{prior}" for joints in ("", ":elastic") for prior in priors):
        with suppress(SysidError):
            variant = load_robot(words)
            if robot_hash(variant) == wanted:
                return variant
    return robot


def _margins_at_start(robot: RobotModel, plan: CertifiedPlan) -> LoopMargins | None:
    if plan.certificate.control_law.name != ROBUST:
        return None
    arm = np.clip(robot.theta_nominal, plan.boxes[0].lower, plan.boxes[0].upper)
    total = add_payload(arm, plan.certificate.nominal_payload)
    settings = RobustSettings.of_law(plan.certificate.control_law)
    shares = (0.0,) if robot.elasticity is None else (-1.0, 1.0)
    start = plan.trajectory.evaluate(0.0)[0]
    return LoopMargins.least(
        SampledLoop(robot, settings, LoopCase(start, total, total, share)).margins() for share in shares
    )


def describe_margins(checked: Sequence[CheckedPlan], joint_names: Sequence[str]) -> str:
    """Say the least gain, phase and delay margin of the loops of some plans, and of which joints; empty without one."""
    loops = [one.margins for one in checked if one.margins is not None]
    if not loops:
        return ""
    least = LoopMargins.least(loops)
    if np.isnan(least.gain).any():
        return f"loop margins: none, a loop is unstable (spectral radius {least.radius:.4f})"
    parts = (("gain", least.gain, "{:.2f}"), ("phase", np.degrees(least.phase), "{:.0f} deg"),
             ("delay", 1e3 * least.delay, "{:.2f} ms"))  # fmt: skip
    texts = [
        f"{name} {form.format(values.min())} ({joint_names[int(values.argmin())]})" for name, values, form in parts
    ]
    return "least loop margins at the starts of plans: " + ", ".join(texts)


def run(options: argparse.Namespace) -> int:
    """Check, and print the findings; return the exit status."""
    ground, cuts, estimates = _ground_of(options.ground), list[str](), list[Box]()
    with watching(f"reading {options.file}") as watch:
        plans = read_plans(options.file, watch, cuts.append, estimates.append)
    checked, was_stopped = _check_with_progress(plans, options, Conditions(tuple(estimates), ground))
    show(make_table(_HEADINGS, [one.cells for one in checked], left=len(_HEADINGS)))
    show(*(hanging(f"plan {one.plan.plan_id[:8]}: ", text) for one in checked for text in one.problems))
    for conditions in dict.fromkeys(one.conditions for one in checked):
        ids = ", ".join(one.plan.plan_id[:8] for one in checked if one.conditions == conditions)
        show(hanging("proven for: ", f"{conditions} (plans {ids})"))
    for note in dict.fromkeys(text for one in checked for text in one.notes):
        ids = ", ".join(one.plan.plan_id[:8] for one in checked if note in one.notes)
        show(hanging("note: ", f"{note} (plans {ids})"))
    if checked:
        show(describe_margins(checked, load_robot(options.model or checked[0].plan.robot_name).joint_names))
    held = sum(one.holds for one in checked)
    show(f"{held} of {len(checked)} certificates hold")
    show(*(f"note: the recording is cut off or damaged ({reason}); the plans are those before" for reason in cuts))
    if was_stopped:
        show(f"stopped: {len(plans) - len(checked)} of {len(plans)} were not checked")
    if held < len(checked):
        return ExitStatus.FAILED
    return ExitStatus.STOPPED if was_stopped else ExitStatus.OK


def _ground_of(text: str) -> float | None:
    """Return the least height of the ground [m]; minus infinity for any, None where there need be none."""
    if text in ("any", "none"):
        return -np.inf if text == "any" else None
    with suppress(ValueError):
        if np.isfinite(height := float(text)):
            return height
    raise ParameterOutOfRange("--ground [m]", text, "a height, none, or any")


def _check_with_progress(
    plans: Sequence[CertifiedPlan], options: argparse.Namespace, known: Conditions
) -> tuple[list[CheckedPlan], bool]:
    checked: list[CheckedPlan] = []
    with ProgressDisplay(sys.stderr) as display:
        display.update(f"plan 1 of {len(plans)}", 0.0)
        try:
            for one in verify_plans(plans, options.model, options.enclose_terms, known):
                checked.append(one)
                share = len(checked) / len(plans)
                display.update(f"plan {min(len(checked) + 1, len(plans))} of {len(plans)}", share)
        except KeyboardInterrupt:
            return checked, True
    return checked, False
