"""Tables and figures of SAFE-ID's experiments, made from their results, with the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.papers.names import (
    CERTIFIED,
    DUMBBELLS,
    EXPERIMENTS,
    FOURIER,
    METHODS,
    OURS,
    PROFILES,
    PUBLISHED,
    RANDOM,
)
from sysid_ros.papers.safe_id import STACK, Spheres, build_task, experiment_robot
from sysid_ros.papers.safe_id_conditions import PAPER as PAPER_CORRELATIONS
from sysid_ros.papers.safe_id_runs import choose_gains, is_safe
from sysid_ros.papers.tables import Entry, Table, cost_tables, describe_median, describe_share, save_figures, select

TABLE_V = {
    "dumbbell_4lb": (274.030, 479.573),
    "dumbbell_5lb": (282.840, 418.078),
    "dumbbell_6lb": (250.704, 373.448),
    "dumbbell_7lb": (258.517, 312.352),
    "dumbbell_8lb": (233.539, 413.381),
}
"""The paper's condition numbers of Y: exciting and random plans."""
_WAY_NAMES = {
    OURS: "certified exciting plans",
    CERTIFIED: "certified random plans",
    RANDOM: "random plans",
    FOURIER: "Fourier series",
}


def tables(entries: Sequence[Entry]) -> list[Table]:
    """Return all tables that have results, the profile ``published`` first."""
    by_profile = [(profile, select(entries, profile=profile)) for profile in PROFILES]
    found = [
        make(own, profile) for make in (_successes, _identifications, _methods, _bounds) for profile, own in by_profile
    ]
    found += [
        _differences(by_profile[0][1]),
        _conditions(by_profile[0][1]),
        _correlations(select(entries, kind="conditions")),
        *cost_tables(entries, _kind_of_run),
    ]
    return [table for table in found if table.rows]


def failure_of(task: Entry, entries: Sequence[Entry]) -> str:
    """Return why a method has failed a task; empty where it has done it.

    Failures while it identified count, too: of the identification among ``entries`` that its model comes from, or of
    its own law where that made the exciting motions.
    """
    job, result, method = task["job"], task["result"], METHODS[task["job"]["method"]]
    before = [result["before"]] if "before" in result else []
    if method.model == "identified":
        runs = select(entries, kind="identify", way=method.way, dumbbell=job["dumbbell"], seed=job["seed"])
        before = [one["result"]["judged"] for one in runs]
    if not all(is_safe(one) for one in before):
        return f"{_broken(before[0])} while it identified"
    if result["failure"]:
        return "no model"
    if not is_safe(result["judged"]):
        return _broken(result["judged"])
    return "misplaced" if job["experiment"] != "c" and result["placed"] > STACK else ""


def _broken(judged: Mapping[str, Any]) -> str:
    if judged["collides"]:
        return "collision"
    return "position limit" if judged["position_limit"] else "torque" if judged["torque"] > 1.0 else "speed"


def _kind_of_run(job: Mapping[str, Any]) -> str:
    what = {"identify": "way", "task": "method", "tune": "method"}.get(job["kind"])
    return job["kind"] if what is None else f"{job['kind']}: {job[what]}"


def outcome(tasks: Sequence[Entry], entries: Sequence[Entry]) -> tuple[str, str]:
    """Return the outcome of tasks in the words of Table III, "success", "fail at 6lb" or "collide", and as a share.

    A dumbbell counts as failed where most arms have failed with it.
    """
    failures = {(one["job"]["dumbbell"], one["job"]["seed"]): failure_of(one, entries) for one in tasks}
    reasons = [why for why in failures.values() if why]
    text = describe_share(len(failures) - len(reasons), len(failures))
    if reasons:
        text += f", {max(reasons, key=reasons.count)}"
    for dumbbell in DUMBBELLS:
        own = [why for (held, _), why in failures.items() if held == dumbbell]
        if 2 * sum(map(bool, own)) > len(own):
            if tasks[0]["job"]["experiment"] == "c":
                return "collide" if sum("collision" in why for why in own) * 2 > len(own) else "fail", text
            return f"fail at {dumbbell.removeprefix('dumbbell_')}", text
    return "success", text


def verdict(entries: Sequence[Entry]) -> str:
    """Return what agrees with Table III, how ours identifies, and what it does on elastic joints, a sentence each."""
    parts = []
    for profile in PROFILES:
        own = select(entries, profile=profile)
        tasks = select(own, kind="task")
        if not tasks:
            continue
        done = [not failure_of(one, own) for one in tasks if one["job"]["method"] == OURS]
        if profile == PUBLISHED:
            cells = _cells(own)
            differ = [f"{name} ({one})" for (name, one), (theirs, ours) in cells.items() if theirs != ours]
            text = f"With the published settings {len(cells) - len(differ)} of {len(cells)} cells of Table III agree"
            parts.append(f"{text}; others: {', '.join(differ)}." if differ else f"{text}.")
            parts.append(f"Ours does {sum(done)} of {len(done)} tasks{_identified(own)}.")
        else:
            runs = select(own, kind="identify", way=OURS)
            reasons = [one["result"]["failure"] for one in runs if one["result"]["failure"]]
            why = f" ({max(reasons, key=reasons.count).split(';')[0]})" if reasons else ""
            parts.append(
                f"On elastic joints, with the gains that the driver allows, exciting plans were certified in "
                f"{len(runs) - len(reasons)} of {len(runs)} identifications{why}; with what they gave, ours does "
                f"{sum(done)} of {len(done)} tasks."
            )
    return " ".join(parts) or "There are no tasks among the results."


def _cells(entries: Sequence[Entry]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the outcomes of Table III by method and experiment: in the paper, and here."""
    return {
        (name, one): (method.paper[k], outcome(group, entries)[0])
        for name, method in METHODS.items()
        for k, one in enumerate(EXPERIMENTS)
        if (group := select(entries, kind="task", method=name, experiment=one)) and method.paper[k] != "-"
    }


def _differences(entries: Sequence[Entry]) -> Table:
    rows = []
    for (name, experiment), (theirs, ours) in _cells(entries).items():
        tasks = [one["result"] for one in select(entries, kind="task", method=name, experiment=experiment)]
        tried = [one for one in tasks if not one["failure"]]
        if theirs != ours and tried:
            judged = [one["judged"] for one in tried]
            rows.append((
                name,
                f"({experiment})",
                theirs,
                ours,
                1e3 * max(one["placed"] for one in tried),
                1e3 * min(one["clearance"] for one in judged),
                max(one["torque"] for one in judged),
                max(one["velocity"] for one in judged),
                sum(one["position_limit"] for one in judged),
            ))  # fmt: skip
    columns = (
        "method",
        "experiment",
        "paper",
        "here",
        "misplaced by [mm]",
        "clearance [mm]",
        "torque / limit",
        "speed / limit",
        "at a joint's stop",
    )
    return Table(
        "Where outcomes differ from the paper: the worst of all tasks, and tasks in which", columns, tuple(rows)
    )


def _identified(entries: Sequence[Entry]) -> str:
    """Compare certified exciting plans with random ones, for the same arms and dumbbells."""
    runs = select(entries, kind="identify", way=OURS)
    others = {
        (one["job"]["dumbbell"], one["job"]["seed"]): one["result"]
        for one in select(entries, kind="identify", way=RANDOM)
    }
    pairs = [(one["result"], others.get((one["job"]["dumbbell"], one["job"]["seed"]))) for one in runs]
    both = [(one, other) for one, other in pairs if other is not None]
    ratios = [_widths(one) / _widths(other) for one, other in both]
    ratios = [one for one in ratios if np.isfinite(one).all()]
    if not ratios:
        return ""
    median = np.median(ratios, axis=0)
    wider = [f"{name} ({m:.2f} times)" for name, m in zip(PARAMETER_NAMES, median, strict=True) if m >= 1.0]
    safe = sum(is_safe(one) for one in (run["result"]["judged"] for run in runs))
    inside = sum(bool(run["result"]["inside"]) for run in runs)
    ours, random = (float(np.median([one[k]["condition"] for one in both])) for k in (0, 1))
    text = (
        f", and identifies without breaking a limit in {safe} of {len(runs)} runs, with the truth inside all bounds in "
        f"{inside}; the condition number of Y is {ours:.3g}, {random:.3g} after random plans"
    )
    return text + (f", whose bounds are narrower for {', '.join(wider)}" if wider else ", whose bounds are all wider")


def _widths(result: Mapping[str, Any]) -> Any:
    return np.subtract(result["upper"], result["lower"], dtype=float)


def _methods(entries: Sequence[Entry], profile: str) -> Table:
    gains = choose_gains(select(entries, kind="tune"))
    rows = []
    for name, method in METHODS.items():
        tasks = select(entries, kind="task", method=name)
        tried = [one["result"] for one in tasks if not one["result"]["failure"]]
        if not tasks:
            continue
        chosen = ", ".join(f"{key} {value:g}" for key, value in gains.get(method.controller, {}).items())
        rows.append((
            name,
            method.controller,
            method.model,
            "-" if method.way is None else _WAY_NAMES[method.way],
            chosen or "as published" * (profile == PUBLISHED) or "by rule",
            len(tried),
            describe_median([one["hand_max"] for one in tried], 1e3),
            describe_median([one["placed"] for one in tried], 1e3),
            describe_median([one["judged"]["torque"] for one in tried]),
            describe_median([one["energy"] for one in tried]),
        ))  # fmt: skip
    columns = (
        "method",
        "control law",
        "model",
        "motion before",
        "gains",
        "tasks",
        "largest error of the hand [mm]",
        "misplaced by [mm]",
        "largest torque / limit",
        "energy [J]",
    )
    return Table(f"Methods (Table II), {profile}: median [95 %], largest over all tasks", columns, tuple(rows))


def _successes(entries: Sequence[Entry], profile: str) -> Table:
    rows = []
    for name, method in METHODS.items():
        cells: list[object] = [name]
        for number, experiment in enumerate(EXPERIMENTS):
            tasks = select(entries, kind="task", method=name, experiment=experiment)
            same, text = outcome(tasks, entries) if tasks else ("-", "-")
            cells += [f"{same}: {text}" if tasks else "-", method.paper[number]]
        if any(select(entries, kind="task", method=name)):
            rows.append(tuple(cells))
    columns = ["method"]
    for experiment in EXPERIMENTS:
        columns += [f"({experiment})", f"({experiment}) paper"]
    title = (
        f"Successes (Table III), {profile}: nothing touched, no limit broken while identifying or placing, and placed "
        f"within one height of the stack, {1e3 * STACK:g} mm (a, b)"
    )
    return Table(title, tuple(columns), tuple(rows))


def _identifications(entries: Sequence[Entry], profile: str) -> Table:
    rows = []
    for way, name in _WAY_NAMES.items():
        runs = [one["result"] for one in select(entries, kind="identify", way=way)]
        known = [one for one in runs if np.isfinite(np.array(one["values"], dtype=float)).all()]
        if not runs:
            continue
        half = (
            0.5 * np.median([_widths(one) for one in known], axis=0) if known else np.full(len(PARAMETER_NAMES), np.nan)
        )
        rows.append((
            name,
            len(runs),
            describe_share(sum(is_safe(one["judged"]) for one in runs), len(runs)),
            describe_share(sum(not one["failure"] for one in runs), len(runs)),
            describe_share(sum(bool(one["inside"]) for one in known), len(known)),
            describe_median([one["condition"] for one in known]),
            *(float(half[k]) for k in (0, 3, 4)),
            describe_median([one["seconds"] for one in runs]),
            describe_median([max(one["planning"]) for one in runs if one.get("planning")]),
        ))  # fmt: skip
    columns = (
        "motion",
        "runs",
        "no limit broken, nothing touched",
        "carried out",
        "truth in all ten bounds",
        "condition number",
        "m +- [kg]",
        "mcz +- [kg m]",
        "Ixx +- [kg m^2]",
        "time [s]",
        "longest search [s]",
    )
    return Table(f"Identification, {profile}: median [95 %], largest; half widths: median", columns, tuple(rows))


def _bounds(entries: Sequence[Entry], profile: str) -> Table:
    rows = []
    for dumbbell in DUMBBELLS:
        for way, name in _WAY_NAMES.items():
            runs = [one["result"] for one in select(entries, kind="identify", way=way, dumbbell=dumbbell)]
            known = [one for one in runs if np.isfinite(np.array(one["values"], dtype=float)).all()]
            if known:
                radii = 0.5 * np.median([_widths(one) for one in known], axis=0)
                rows.append((dumbbell, name, len(known), *(float(one) for one in radii)))
    columns = ("held", "motion", "runs", *(f"{n} [{u}]" for n, u in zip(PARAMETER_NAMES, PARAMETER_UNITS, strict=True)))
    return Table(f"Half widths of the guaranteed bounds (Figures 6 to 10), {profile}, median", columns, tuple(rows))


def _correlations(entries: Sequence[Entry]) -> Table:
    rows = []
    by_period = {entry["job"]["period"]: entry["result"] for entry in entries}
    for k, horizon in enumerate(next(iter(by_period.values()))["horizons"] if by_period else ()):
        found = [np.corrcoef(one["w"], np.array(one["y"])[:, k])[0, 1] for one in by_period.values()]
        rows.append((horizon, *(f"{one:.4f}" for one in found), f"{PAPER_CORRELATIONS[k]:.4f}"))
    motions = entries[0]["job"]["motions"] if entries else 0
    names = [f"first harmonic {1.0 / period:g} Hz" for period in by_period]
    title = f"Correlation of the condition numbers of W and Y over h (Table IV), {motions} random motions of each kind"
    return Table(title, ("h", *names, "paper"), tuple(rows))


def _conditions(entries: Sequence[Entry]) -> Table:
    rows = []
    for dumbbell in DUMBBELLS:
        cells = []
        for way in (OURS, CERTIFIED, RANDOM):
            runs = select(entries, kind="identify", way=way, dumbbell=dumbbell)
            values = [one["result"]["condition"] for one in runs]
            cells.append(describe_median([value for value in values if np.isfinite(value)]))
        if set(cells) != {"-"}:
            rows.append((dumbbell, *cells, *TABLE_V[dumbbell]))
    names = (_WAY_NAMES[way] for way in (OURS, CERTIFIED, RANDOM))
    columns = ("held", *names, "paper: exciting", "paper: random")
    return Table("Condition number of Y (Table V): median [95 %], largest", columns, tuple(rows))


def draw_figures(entries: Sequence[Entry], folder: Path) -> list[tuple[Path, str]]:
    """Draw the figures from the first arm.

    Returns:
        Files and captions.
    """
    own = select(entries, profile=PUBLISHED)
    return save_figures([*_draw_scenes(), *_draw_masses(own), *_draw_bounds(own), *_draw_tracking(own)], folder)


def _draw_masses(entries: Sequence[Entry]) -> list[tuple[str, Figure, str]]:
    held = DUMBBELLS[0]
    identified = select(entries, kind="identify", dumbbell=held, seed=0)
    if not identified:
        return []
    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    axes = figure.subplots()
    for one in identified:
        if one["job"]["way"] != FOURIER and one["result"]["history"]:
            times, masses = zip(*one["result"]["history"], strict=True)
            axes.plot(times, masses, "o-", markersize=3.0, label=_WAY_NAMES[one["job"]["way"]])
    for name in ("adap-1", "adap-1-excit", "adap-2", "adap-2-excit"):
        for one in select(entries, kind="task", method=name, experiment="b", dumbbell=held, seed=0):
            times, masses = zip(*one["result"]["masses"], strict=True)
            axes.plot(times, masses, linewidth=1.0, label=name)
    axes.axhline(identified[0]["result"]["truth"][0], color="0.3", linestyle="--", label="truth")
    axes.set_xlabel("time [s]")
    axes.set_ylabel("mass [kg]")
    axes.legend(fontsize=8)
    return [("safe_id_figure_5", figure, "As Figure 5: estimated mass of the 4 lb dumbbell over time, Experiment (b).")]


def _draw_bounds(entries: Sequence[Entry]) -> list[tuple[str, Figure, str]]:
    runs = select(entries, kind="identify", seed=0)
    if not runs:
        return []
    figure = Figure(figsize=(12.0, 5.5), layout="constrained")
    for k, axes in enumerate(figure.subplots(2, 5).flat):
        for place, dumbbell in enumerate(DUMBBELLS):
            for way, color, shift in ((OURS, "tab:green", -0.15), (RANDOM, "tab:orange", 0.15)):
                for one in runs:
                    if one["job"]["dumbbell"] == dumbbell and one["job"]["way"] == way:
                        result, x = one["result"], place + shift
                        truth = result["truth"][k]
                        axes.vlines(
                            x, result["lower"][k] - truth, result["upper"][k] - truth, color=color, linewidth=4.0
                        )
                        axes.plot(x, result["values"][k] - truth, "_", color="black")
        axes.axhline(0.0, color="0.3", linewidth=0.8, linestyle="--")
        axes.set_title(f"{PARAMETER_NAMES[k]} [{PARAMETER_UNITS[k]}]", fontsize=9)
        axes.set_xticks(range(len(DUMBBELLS)), [one.removeprefix("dumbbell_") for one in DUMBBELLS], fontsize=7)
        axes.tick_params(labelsize=7)
    caption = (
        "As Figures 6 to 10: bounds of the ten parameters less the truth, for five dumbbells; green: certified "
        "exciting plans, orange: random plans; black: point estimates."
    )
    return [("safe_id_figures_6_to_10", figure, caption)]


def _draw_tracking(entries: Sequence[Entry]) -> list[tuple[str, Figure, str]]:
    found = []
    for experiment, number in (("a", 11), ("b", 12)):
        runs = select(entries, kind="task", experiment=experiment, seed=0, dumbbell=DUMBBELLS[-1])
        tasks = [one for one in runs if "shown" in one["result"]]
        if not tasks:
            continue
        figure = Figure(figsize=(11.0, 2.0 + 1.1 * len(tasks)), layout="constrained")
        rows = figure.subplots(len(tasks), 2, sharex=True, sharey="col", squeeze=False)
        for row, one in zip(rows, tasks, strict=True):
            shown = one["result"]["shown"]
            lines = row[0].plot(shown["t"], 1e3 * np.array(shown["error"]), linewidth=0.8)
            row[0].set_ylabel(one["job"]["method"], fontsize=7, rotation=0, ha="right")
            row[1].plot(shown["t"], shown["torque"], linewidth=0.8)
            for axes in row:
                axes.tick_params(labelsize=6)
        rows[0, 0].set_yscale("symlog", linthresh=1.0)
        rows[0, 0].set_title("tracking errors [mrad]", fontsize=9)
        rows[0, 1].set_title("commanded torques [Nm]", fontsize=9)
        names = [f"joint {k + 1}" for k in range(len(lines))]
        figure.legend(lines, names, loc="outside lower center", ncols=len(lines), fontsize=7)
        caption = (
            f"As Figure {number}: tracking errors (linear up to 1 mrad, then logarithmic) and torques with 8 lb, "
            f"Experiment ({experiment})."
        )
        found.append((f"safe_id_figure_{number}", figure, caption))
    return found


def _draw_scenes() -> list[tuple[str, Figure, str]]:
    """Draw spheres of arm and payload at the knots of the three motions, from the side, with the obstacle."""
    robot = experiment_robot()
    spheres = Spheres(robot)
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    for axes, experiment in zip(figure.subplots(1, len(EXPERIMENTS), sharey=True), EXPERIMENTS, strict=True):
        task = build_task(experiment)
        for q, color in zip(task.knots[:, 0], ("tab:blue", "tab:gray", "tab:green"), strict=True):
            for center, radius in zip(spheres.centers(q), spheres.radii, strict=True):
                axes.add_patch(Circle((np.hypot(*center[:2]), center[2]), radius, color=color, alpha=0.15))
        times = np.linspace(0.0, 2.0 * task.leg, 101)
        path = BodyPoses(robot).tool_path(np.array([task.evaluate(t)[0] for t in times]))
        axes.plot(np.hypot(path[:, 0], path[:, 1]), path[:, 2], color="black", linewidth=1.0)
        (box,) = task.scene.obstacles
        reach, half = np.hypot(*box.center[:2]), box.half_extents[0]
        axes.add_patch(Rectangle((reach - half, 0.0), 2.0 * half, 2.0 * box.half_extents[2], color="tab:red"))
        axes.set_title(f"({experiment})")
        axes.set_ylabel("height [m]" if experiment == EXPERIMENTS[0] else "")
        axes.set_xlabel("distance from the axis of joint 1 [m]")
        axes.set_aspect("equal")
    caption = (
        "As Figures 3 and 4: arm and payload at the beginning (blue), half way (grey) and at the goal (green), path of "
        "the hand and obstacle (red), by distance from the axis of joint 1 and height."
    )
    return [("safe_id_figures_3_and_4", figure, caption)]
