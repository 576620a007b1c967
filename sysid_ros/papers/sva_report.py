"""Tables and figures of the experiments of SVA, made from their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sysid_ros.core.online_model.least_squares import Observation
from sysid_ros.papers.names import ARM, COST, LEG, PENDULUM
from sysid_ros.papers.sva import ASYMPTOTIC, robot_of
from sysid_ros.papers.tables import Entry, Table, cost_tables, describe_median, save_figures, select

GATE = 0.95
"""R^2 at which the paper's gate opens."""
_LOST = 0.5
"""Tracking error beyond which the arm has been lost [rad]."""


def tables(entries: Sequence[Entry]) -> list[Table]:
    """Return the tables of all experiments that have results."""
    found = [
        *_pendulum_tables(select(entries, experiment=PENDULUM)),
        *_leg_tables(select(entries, experiment=LEG)),
        *_arm_tables(select(entries, experiment=ARM)),
        *_cost_tables(select(entries, experiment=COST)),
        *cost_tables(entries, lambda job: str(job["experiment"])),
    ]
    return [table for table in found if table.rows]


def verdict(entries: Sequence[Entry]) -> str:
    """Return the conclusions on the paper's method and ours, unfavourable ones first."""
    arms = select(entries, experiment=ARM)
    parts = []
    for kind in Observation:
        runs = [entry["result"] for entry in arms if entry["job"]["observation"] == kind.value]
        if not runs:
            continue
        lost = sum(_is_lost(run) for run in runs)
        opened = [run["opened"] for run in runs if run["opened"] is not None]
        way = "accelerations by a moving average, as the paper" if kind is Observation.ACCELERATION else "momentum rows"
        text = f"with {way}, the gate opens in {len(opened)} of {len(runs)} runs"
        text += f" after {min(opened):.1f} to {max(opened):.1f} s (paper: 16 to 17 s)" if opened else ""
        grown = [run for run in runs if "after" in run and max(run["after"]["rms"]) > max(run["before"]["rms"])]
        parts.append(f"{text}, afterwards the errors are larger in {len(grown)} of these and the arm is lost in {lost}")
    if not parts:
        return "No run of the arm is among the results."
    text = "; ".join(parts)
    closing = "R^2 judges past torques: it does not keep the arm. No tracking bound is claimed for this control law."
    return f"{text[0].upper()}{text[1:]}. {closing}{_slower(select(entries, experiment=COST))}"


def _slower(entries: Sequence[Entry]) -> str:
    ratios = [one["result"]["seconds"]["batched"] / one["result"]["seconds"]["pinocchio"] for one in entries]
    if not ratios or max(ratios) <= 1.0:
        return ""
    return (
        f" Our batched regressor, which has friction columns too and checks its input, takes {min(ratios):.1f} to "
        f"{max(ratios):.1f} times as long for a sample as Pinocchio's."
    )


def _is_lost(run: Mapping[str, Any]) -> bool:
    return "after" in run and max(run["after"]["peak_to_peak"]) > 2.0 * _LOST


def _pendulum_tables(entries: Sequence[Entry]) -> list[Table]:
    rows: list[tuple[object, ...]] = []
    for name in entries[0]["result"]["fits"] if entries else ():
        fits = [entry["result"]["fits"][name] for entry in entries]
        numbers = [
            describe_least([fit[what][joint] for fit in fits])
            for what in ("determination", "validation")
            for joint in range(2)
        ]
        rows.append((name, fits[0]["parameters"], fits[0]["rank"], len(fits), *numbers))
    columns = (
        "rows, model",
        "parameters",
        "rank",
        "runs",
        "R^2 joint 1",
        "joint 2",
        "other motion 1",
        "other motion 2",
    )
    title = (
        "Double pendulum offline, three parameters per link as the paper, and with friction (Figures 4, 5): "
        "R^2, median and least"
    )
    return [Table(title, columns, tuple(rows))]


def describe_least(values: Sequence[float]) -> str:
    """Return the median of some coefficients of determination, and the least."""
    return f"{np.median(values):.4f}, {np.min(values):.4f}"


def _leg_tables(entries: Sequence[Entry]) -> list[Table]:
    rows: list[tuple[object, ...]] = []
    names = robot_of(LEG).joint_names
    guess = [min(entry["result"]["validation_of_the_guess"]) for entry in entries]
    for name in entries[0]["result"]["fits"] if entries else ():
        fits = [entry["result"]["fits"][name] for entry in entries]
        for until in (1.0, 2.0, 5.0, 10.0, 20.0, 40.0):
            at = [int(np.searchsorted(fit["t"], until + 1e-6)) - 1 for fit in fits]
            if any(k < 0 or fit["t"][-1] < until - 1.0 for k, fit in zip(at, fits, strict=True)):
                continue
            inside = [min(fit["determination"][k]) for k, fit in zip(at, fits, strict=True)]
            outside = [min(fit["validation"][k]) for k, fit in zip(at, fits, strict=True)]
            rows.append((name, until, at[0] + 1, len(fits), describe_least(inside), describe_least(outside)))
    title = f"Leg online, growing buffer (Figure 6): R^2 of the worst of {len(names)} joints, median and least"
    if guess:
        title += f"; the guess alone has {describe_least(guess)} on the other motion"
    columns = (
        "rows, prior",
        "time [s]",
        "samples",
        "runs",
        "R^2 of the buffer",
        "R^2 of another motion, without noise",
    )
    return [Table(title, columns, tuple(rows))]


def _arm_tables(entries: Sequence[Entry]) -> list[Table]:
    names = robot_of(ARM).joint_names
    tracking: list[tuple[object, ...]] = []
    for kind in Observation:
        runs = [entry["result"] for entry in entries if entry["job"]["observation"] == kind.value]
        changed = [run for run in runs if "after" in run]
        for joint, name in enumerate(names if changed else ()):
            cells = [
                describe_median([abs(run[when][what][joint]) for run in changed], 1e3)
                for what in ("bias", "peak_to_peak")
                for when in ("before", "after")
            ]
            tracking.append((kind.value, name, len(changed), *cells))
    return [
        Table(
            "Arm, tick and tock (Figure 7c): tracking errors [mrad] with the first model and with the identified one, "
            "median [95 %], largest",
            ("rows", "joint", "runs", "bias before", "bias after", "peak to peak before", "peak to peak after"),
            tuple(tracking),
        ),
    ]


def _cost_tables(entries: Sequence[Entry]) -> list[Table]:
    ways = {
        "algorithm_1": "Algorithm 1, unit parameters",
        "batched": "ours, 64 samples at a time",
        "pinocchio": "Pinocchio, one sample",
    }
    ordered = sorted(entries, key=lambda entry: entry["job"]["joints"])
    sizes = [entry["job"]["joints"] for entry in ordered]
    rows: list[tuple[object, ...]] = []
    for way, name in ways.items():
        seconds = np.array([entry["result"]["seconds"][way] for entry in ordered])
        large = np.array(sizes) >= ASYMPTOTIC
        if large.sum() < 2:
            continue
        exponent = float(np.polyfit(np.log(np.array(sizes)[large]), np.log(seconds[large]), 1)[0])
        differences = [entry["result"]["difference"].get(way, 0.0) for entry in ordered]
        rows.append((name, *(f"{1e6 * one:.3g}" for one in seconds), f"{exponent:.2f}", f"{max(differences):.1e}"))
    title = "Regressor of a tree of n joints, a chain below 16: processor time [us] per sample, exponent from "
    title += f"n = {ASYMPTOTIC} on"
    columns = ("way", *(f"n = {n}" for n in sizes), "exponent", "largest difference from Pinocchio")
    return [Table(title, columns, tuple(rows))]


def draw_figures(entries: Sequence[Entry], folder: Path) -> list[tuple[Path, str]]:
    """Draw Figures 4 to 7 from the first seed of each experiment.

    Returns:
        Files and captions.
    """
    found = ((draw, select(entries, experiment=experiment)) for experiment, draw in _FIGURES.items())
    return save_figures((one for draw, runs in found if runs for one in draw(runs)), folder)


_PENDULUM_MODELS = {"three parameters": "no friction", "with friction": "with friction"}
"""Models that are drawn: the paper's, of each link, and ours; and the names of their fits."""


def _draw_pendulum(entries: Sequence[Entry]) -> list[tuple[str, Figure, str]]:
    shown = {name: np.array(values) for name, values in entries[0]["result"]["shown"].items()}
    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    top, *rest = figure.subplots(3, 1, sharex=True)
    top.plot(shown["motion_t"], shown["q"], label=["q1", "q2"])
    top.set_ylabel("position [rad]")
    top.legend(loc="upper right")
    for joint, axes in enumerate(rest):
        axes.plot(shown["t"], shown["measured"][:, joint], color="0.6", label="measured")
        for model in _PENDULUM_MODELS:
            axes.plot(shown["t"], shown[model][:, joint], "--", linewidth=1.0, label=f"computed, {model}")
        axes.set_ylabel(f"u{joint + 1} [Nm]")
    rest[0].legend(loc="upper right")
    rest[1].set_xlabel("time [s]")
    scatter = Figure(figsize=(8.0, 7.0), layout="constrained")
    for row, (model, name) in zip(scatter.subplots(2, 2), _PENDULUM_MODELS.items(), strict=True):
        fit = entries[0]["result"]["fits"][f"{Observation.ACCELERATION.value}, {name}"]
        for joint, axes in enumerate(row):
            x, y = shown["measured"][:, joint], shown[model][:, joint]
            axes.plot(x, y, ".", markersize=3.0)
            axes.plot([x.min(), x.max()], [x.min(), x.max()], color="0.5", linewidth=0.8)
            axes.set_title(f"{model}, joint {joint + 1}: R² = {fit['determination'][joint]:.4f}")
            axes.set_xlabel("measured torque [Nm]")
    scatter.axes[0].set_ylabel("computed torque [Nm]")
    return [
        ("sva_figure_4", figure, "As Figure 4: motion of the double pendulum, measured and computed torques."),
        ("sva_figure_5", scatter, "As Figure 5: computed over measured torques of the double pendulum."),
    ]


def _draw_leg(entries: Sequence[Entry]) -> list[tuple[str, Figure, str]]:
    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    fits, names = entries[0]["result"]["fits"], robot_of(LEG).joint_names
    fit = next(iter(fits.values()))
    for joint, name in enumerate(names):
        (line,) = top.plot(fit["t"], np.array(fit["measured"])[:, joint], label=name, linewidth=1.0)
        top.plot(fit["t"], np.array(fit["computed"])[:, joint], ".", color=line.get_color(), markersize=4.0)
    top.set_ylabel("torque [Nm]\nmeasured (line), computed (dots)")
    top.legend(loc="upper right", ncols=4, fontsize=8)
    for (kind, one), style in zip(fits.items(), ("-", ":", "--", "-."), strict=True):
        bottom.plot(one["t"], np.array(one["validation"]).min(axis=1), style, label=f"{kind}, another motion")
        inside = np.array(one["determination"]).min(axis=1)
        bottom.plot(one["t"], inside, style, alpha=0.4, label=f"{kind}, buffer")
    bottom.axhline(GATE, color="0.5", linewidth=0.8)
    bottom.set_ylim(0.85, 1.005)
    bottom.set_ylabel("R², worst joint")
    bottom.set_xlabel("time [s]")
    bottom.legend(loc="lower right", fontsize=8)
    return [
        ("sva_figure_6", figure, "As Figure 6: online fit of the leg, torques predicted by the fit before each sample.")
    ]


def _draw_arm(entries: Sequence[Entry]) -> list[tuple[str, Figure, str]]:
    found = []
    for kind in Observation:
        runs = [entry["result"] for entry in entries if entry["job"]["observation"] == kind.value]
        if not runs:
            continue
        run = runs[0]
        shown = {name: np.array(values) for name, values in run["shown"].items()}
        figure = Figure(figsize=(9.0, 7.5), layout="constrained")
        motion, fit, error = figure.subplots(3, 1, sharex=True)
        motion.plot(shown["t"], shown["q"], linewidth=1.0, label=list(robot_of(ARM).joint_names))
        motion.set_ylabel("position [rad]")
        motion.legend(loc="upper right", ncols=4, fontsize=8)
        fit.plot(run["t"], np.array(run["determination"]), linewidth=1.0)
        fit.axhline(GATE, color="0.5", linewidth=0.8)
        fit.set_ylim(0.9, 1.002)
        fit.set_ylabel("R² of the buffer")
        error.plot(shown["t"], 1e3 * shown["error"], linewidth=1.0)
        error.set_ylabel("tracking error [mrad]")
        error.set_xlabel("time [s]")
        if run["opened"] is not None:
            for axes in (motion, fit, error):
                axes.axvline(run["opened"], color="0.3", linestyle=":")
        caption = f"As Figure 7, rows from {kind.value}: motion, R² and tracking errors; dotted: the gate opens."
        found.append((f"sva_figure_7_{kind.value}", figure, caption))
    return found


_FIGURES = {PENDULUM: _draw_pendulum, LEG: _draw_leg, ARM: _draw_arm}
