"""Tables and figures of SAFE-ID's experiments, made from their results, with the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.papers.names import DUMBBELLS, EXPERIMENTS, FOURIER, METHODS, OURS, RANDOM
from sysid_ros.papers.safe_id_conditions import PAPER as PAPER_CORRELATIONS
from sysid_ros.papers.safe_id_runs import choose_gains, is_safe
from sysid_ros.papers.tables import Table, cost_tables, describe_median, describe_share

Entry = Mapping[str, Any]
TOLERANCE = 1e-3
"""How far a dumbbell may end from its place in Experiments (a) and (b), and what clearance may be lost in (c) [m]."""
TABLE_V = {
    "dumbbell_4lb": (274.030, 479.573),
    "dumbbell_5lb": (282.840, 418.078),
    "dumbbell_6lb": (250.704, 373.448),
    "dumbbell_7lb": (258.517, 312.352),
    "dumbbell_8lb": (233.539, 413.381),
}
"""The paper's condition numbers of Y: exciting and random plans."""
PAPER_SECONDS = 7.5
"""Duration of the paper's identification [s]."""


def tables(entries: Sequence[Entry]) -> list[Table]:
    """Return all tables that have results."""
    found = [
        _methods(entries),
        *_successes(entries),
        _identifications(entries),
        _bounds(entries),
        _correlations(of_kind(entries, "conditions")),
        _conditions(of_kind(entries, "identify")),
        *cost_tables(entries, _kind_of_run),
    ]
    return [table for table in found if table.rows]


def of_kind(entries: Sequence[Entry], kind: str, **wanted: Any) -> list[Entry]:
    """Return the entries of a kind of runs, with these values in their jobs."""
    return [
        entry
        for entry in entries
        if entry["job"]["kind"] == kind and all(entry["job"].get(name) == value for name, value in wanted.items())
    ]


def failure_of(task: Entry, entries: Sequence[Entry]) -> str:
    """Return why a method has failed a task; empty where it has done it.

    Failures during identification count: a method that breaks a limit on the way to its model has failed.
    """
    job, result, method = task["job"], task["result"], METHODS[task["job"]["method"]]
    if method.model == "identified":
        before = of_kind(entries, "identify", way=method.way, dumbbell=job["dumbbell"], seed=job["seed"])
        if before and not is_safe(before[0]["result"]["judged"]):
            return _broken(before[0]["result"]["judged"]) + " while it identified"
    if result["failure"]:
        return "no model"
    if not is_safe(result["judged"]):
        return _broken(result["judged"])
    if job["experiment"] == "c":
        return "too near" if result["clearance_lost"] > TOLERANCE else ""
    return "misplaced" if result["placed"] > TOLERANCE else ""


def _broken(judged: Mapping[str, Any]) -> str:
    if judged["collides"]:
        return "collision"
    return "position limit" if judged["position_limit"] else "torque" if judged["torque"] > 1.0 else "speed"


def _kind_of_run(job: Mapping[str, Any]) -> str:
    what = {"identify": "way", "task": "method", "tune": "method"}.get(job["kind"])
    return job["kind"] if what is None else f"{job['kind']}: {job[what]}"


MEASURES = {
    "mean error of the hand": ("hand_mean", 1e3, "mm"),
    "largest torque over its limit": ("torque", 1.0, ""),
    "RMS torque over its limit": ("torque_rms", 1.0, ""),
    "energy": ("energy", 1.0, "J"),
}
"""Further criteria of comparison: entry of a result, scale and unit."""
SAME = 0.01
"""Share by which medians may differ and still count as the same."""


def verdict(entries: Sequence[Entry]) -> str:
    """Return where ours is not better than another method or the paper, then where it is."""
    groups = {name: of_kind(entries, "task", method=name) for name in METHODS}
    groups = {name: group for name, group in groups.items() if group}
    if "ours" not in groups:
        return "No task of ours is among the results."
    total = len(groups["ours"])
    compared = {name: group for name, group in groups.items() if len(group) >= total}
    done = {name: sum(not failure_of(one, entries) for one in group) for name, group in compared.items()}
    own = done["ours"]
    rivals = [name for name, count in done.items() if name != "ours" and count >= own]
    text = f"Ours does {own} of {total} tasks"
    text += (
        f"; as large a share or a larger one: {', '.join(rivals)}." if rivals else ", a larger share than any other."
    )
    worst = {name: 1e3 * max(_values(group, "hand_max"), default=np.nan) for name, group in compared.items()}
    closer = [name for name, error in worst.items() if name != "ours" and error <= worst["ours"]]
    text += f" Its largest error of the hand is {worst['ours']:.2f} mm"
    text += f"; no larger: {', '.join(closer)}." if closer else ", the smallest of all methods."
    text += _medians(compared) + _identified_later(entries) + _not_narrower(entries) + _worse_conditioned(entries)
    counts = []
    for way, words in _WAY_NAMES.items():
        runs = of_kind(entries, "identify", way=way)
        if runs:
            counts.append(f"{words} in {sum(not is_safe(one['result']['judged']) for one in runs)} of {len(runs)} runs")
    fewer = [f"{name} ({len(group)})" for name, group in groups.items() if name not in compared]
    text += f" On fewer tasks, and not compared: {', '.join(fewer)}." if fewer else ""
    tasks = of_kind(entries, "task")
    arms = len({one["job"]["seed"] for one in tasks})
    text += f" Size: {arms} arm{'s' * (arms > 1)}, {len({one['job']['dumbbell'] for one in tasks})} dumbbells."
    return f"{text} While identifying, a limit was broken or something touched by {', by '.join(counts)}. {_SETUP}"


def _values(tasks: Sequence[Entry], name: str) -> list[float]:
    results = [one["result"] for one in tasks if not one["result"]["failure"]]
    return [float(one["judged"][name] if name == "torque" else one[name]) for one in results]


def _medians(groups: Mapping[str, Sequence[Entry]]) -> str:
    """Say in which medians other methods are better by more than :data:`SAME`, of those that began as many tasks."""
    parts, begun = [], {method: len(_values(group, "hand_max")) for method, group in groups.items()}
    for words, (name, scale, unit) in MEASURES.items():
        medians = {
            method: scale * float(np.median(_values(group, name)))
            for method, group in groups.items()
            if begun[method] >= max(1, begun["ours"])
        }
        own = medians.pop("ours", np.nan)
        lower = [f"{method} {median:.3g}" for method, median in medians.items() if median < (1.0 - SAME) * own]
        if lower:
            parts.append(f"{words} ({own:.3g}{f' {unit}' if unit else ''}; {', '.join(lower)})")
    return f" By more than {100 * SAME:g} %, others have smaller medians in {'; '.join(parts)}." if parts else ""


def _identified_later(entries: Sequence[Entry]) -> str:
    """Describe the methods that identify sooner, and whether ours needs longer than the paper states."""
    times = {}
    for way in (OURS, RANDOM, FOURIER):
        runs = of_kind(entries, "identify", way=way)
        if runs:
            times[way] = float(np.median([one["result"]["seconds"] for one in runs]))
    if OURS not in times:
        return ""
    sooner = [f"{_WAY_NAMES[way]} ({t:.1f} s)" for way, t in times.items() if way != OURS and t < times[OURS]]
    slower = f", in the paper {PAPER_SECONDS:g} s without the weighing" if times[OURS] > PAPER_SECONDS else ""
    by = f"; sooner by {', '.join(sooner)}" if sooner else ""
    return f" It has identified after {times[OURS]:.1f} s{slower}{by}."


def _not_narrower(entries: Sequence[Entry]) -> str:
    """Say which bounds are not narrower than those after random plans with the same arm and dumbbell, in the median."""
    ratios = []
    for one in of_kind(entries, "identify", way=OURS):
        job = one["job"]
        for other in of_kind(entries, "identify", way=RANDOM, dumbbell=job["dumbbell"], seed=job["seed"]):
            widths = [np.subtract(x["result"]["upper"], x["result"]["lower"]).astype(float) for x in (one, other)]
            if all(np.isfinite(width).all() for width in widths):
                ratios.append(widths[0] / widths[1])
    if not ratios:
        return ""
    medians = np.median(ratios, axis=0)
    wider = [f"{name} ({m:.2f} times)" for name, m in zip(PARAMETER_NAMES, medians, strict=True) if m >= 1.0]
    return f" Its bounds are not narrower than after random plans for {', '.join(wider)}." if wider else ""


def _worse_conditioned(entries: Sequence[Entry]) -> str:
    """Say with which dumbbells random plans, or those of the paper, are better conditioned."""
    by_random, by_paper = [], []
    for dumbbell in DUMBBELLS:
        medians = [
            np.median([one["result"]["condition"] for one in of_kind(entries, "identify", way=way, dumbbell=dumbbell)])
            for way in (OURS, RANDOM)
            if of_kind(entries, "identify", way=way, dumbbell=dumbbell)
        ]
        name = dumbbell.removeprefix("dumbbell_")
        if len(medians) == 2 and not medians[0] < medians[1]:
            by_random.append(name)
        if of_kind(entries, "identify", way=OURS, dumbbell=dumbbell) and not medians[0] < TABLE_V[dumbbell][0]:
            by_paper.append(name)
    text = f" Random plans, which know of no torque limit, are better conditioned with {', '.join(by_random)}."
    paper = f" The paper's exciting plans are better conditioned than ours with {', '.join(by_paper)}."
    return text * bool(by_random) + paper * bool(by_paper)


_WAY_NAMES = {OURS: "certified exciting plans", RANDOM: "random plans", FOURIER: "Fourier series"}
_SETUP = (
    "Joints are rigid here; robust and adaptive laws share the gains of their feedback, the others have "
    "the best of a grid. So errors are not those of the paper's arm."
)


def _methods(entries: Sequence[Entry]) -> Table:
    gains = choose_gains(of_kind(entries, "tune"))
    rows = []
    for name, method in METHODS.items():
        tasks = of_kind(entries, "task", method=name)
        tried = [one["result"] for one in tasks if not one["result"]["failure"]]
        if not tasks:
            continue
        chosen = ", ".join(f"{key} {value:g}" for key, value in gains.get(method.controller, {}).items())
        before = [
            one["result"]["seconds"]
            for one in of_kind(entries, "identify", way=method.way)
            if method.model == "identified"
        ]
        rows.append((
            name,
            method.controller,
            method.model,
            "-" if method.way is None else _WAY_NAMES[method.way],
            chosen or "library defaults",
            len(tried),
            describe_median([one["hand_max"] for one in tried], 1e3),
            describe_median([one["hand_mean"] for one in tried], 1e3),
            describe_median([one["judged"]["torque"] for one in tried]),
            describe_median([one["torque_rms"] for one in tried]),
            describe_median([one["energy"] for one in tried]),
            f"{np.median(before):.1f}" if before else "-",
        ))  # fmt: skip
    columns = (
        "method",
        "control law",
        "model",
        "motion before",
        "gains",
        "tasks",
        "largest error of the hand [mm]",
        "mean error [mm]",
        "largest torque / limit",
        "RMS torque / limit",
        "energy [J]",
        "identified after [s]",
    )
    return Table("Methods (Table II): median [95 %], largest over all tasks", columns, tuple(rows))


def _successes(entries: Sequence[Entry]) -> list[Table]:
    rows, worst = [], []
    for name, method in METHODS.items():
        cells: list[object] = [name]
        errors: list[object] = [name]
        for number, experiment in enumerate(EXPERIMENTS):
            tasks = of_kind(entries, "task", method=name, experiment=experiment)
            failures = [(one["job"]["dumbbell"], failure_of(one, entries)) for one in tasks]
            failed = [one for one in failures if one[1]]
            text = describe_share(len(tasks) - len(failed), len(tasks))
            if failed:
                lightest = min(dumbbell for dumbbell, _ in failed).removeprefix("dumbbell_")
                text += f", from {lightest}: {max({why for _, why in failed}, key=[why for _, why in failed].count)}"
            cells += [text, method.paper[number]]
            what = "clearance_lost" if experiment == "c" else "placed"
            errors.append(describe_median([one["result"][what] for one in tasks if not one["result"]["failure"]], 1e3))
        if any(of_kind(entries, "task", method=name)):
            rows.append(tuple(cells))
            worst.append(tuple(errors))
    columns = ["method"]
    for experiment in EXPERIMENTS:
        columns += [f"({experiment})", f"({experiment}) paper"]
    title = (
        f"Successes (Table III): nothing touched, no limit broken while identifying or placing, and placed within "
        f"{1e3 * TOLERANCE:g} mm (a, b), or no more than that of the clearance lost (c)"
    )
    return [
        Table(title, tuple(columns), tuple(rows)),
        Table(
            "What a tolerance would have to be [mm], median [95 %], largest: where the dumbbell ends (a, b), clearance "
            "that is lost (c)",
            ("method", "(a)", "(b)", "(c)"),
            tuple(worst),
        ),
    ]


def _identifications(entries: Sequence[Entry]) -> Table:
    rows = []
    for way, name in _WAY_NAMES.items():
        runs = [one["result"] for one in of_kind(entries, "identify", way=way)]
        if not runs:
            continue
        known = [one for one in runs if np.isfinite(np.array(one["values"], dtype=float)).all()]
        error = [abs(one["values"][0] - one["truth"][0]) for one in known]
        width = [one["upper"][0] - one["lower"][0] for one in known]
        rows.append((
            name,
            len(runs),
            describe_share(sum(is_safe(one["judged"]) for one in runs), len(runs)),
            describe_share(len(known), len(runs)),
            describe_share(sum(bool(one["inside"]) for one in known), len(known)),
            describe_median(error, 1e3),
            describe_median(width, 1e3),
            describe_median([one["seconds"] for one in runs]),
        ))  # fmt: skip
    columns = (
        "motion",
        "runs",
        "no limit broken, nothing touched",
        "consistent data",
        "truth in all ten bounds",
        "error of the mass [g]",
        "width of its bounds [g]",
        "time [s]",
    )
    return Table("Identification: median [95 %], largest", columns, tuple(rows))


def _bounds(entries: Sequence[Entry]) -> Table:
    rows = []
    for dumbbell in DUMBBELLS:
        for way in (OURS, RANDOM):
            runs = [one["result"] for one in of_kind(entries, "identify", way=way, dumbbell=dumbbell)]
            known = [one for one in runs if np.isfinite(np.array(one["values"], dtype=float)).all()]
            if known:
                radii = np.median([0.5 * np.subtract(one["upper"], one["lower"]) for one in known], axis=0)
                rows.append((dumbbell, _WAY_NAMES[way], len(known), *(float(one) for one in radii)))
    columns = ("held", "motion", "runs", *(f"{n} [{u}]" for n, u in zip(PARAMETER_NAMES, PARAMETER_UNITS, strict=True)))
    return Table("Half widths of the guaranteed bounds (Figures 6 to 10), median", columns, tuple(rows))


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
        for way in (OURS, RANDOM):
            runs = of_kind(entries, "identify", way=way, dumbbell=dumbbell)
            values = [one["result"]["condition"] for one in runs]
            cells.append(describe_median([value for value in values if np.isfinite(value)]))
        if cells != ["-", "-"]:
            rows.append((dumbbell, *cells, *TABLE_V[dumbbell]))
    columns = ("held", "certified exciting plans", "random plans", "paper: exciting", "paper: random")
    return Table("Condition number of Y (Table V): median [95 %], largest", columns, tuple(rows))


def draw_figures(entries: Sequence[Entry], folder: Path) -> list[tuple[Path, str]]:
    """Draw the figures from the first arm.

    Returns:
        Files and captions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, figure, caption in (*_draw_masses(entries), *_draw_bounds(entries), *_draw_tracking(entries)):
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=80)
        drawn.append((path, caption))
    return drawn


def _draw_masses(entries: Sequence[Entry]) -> list[tuple[str, Figure, str]]:
    held = DUMBBELLS[0]
    identified = of_kind(entries, "identify", dumbbell=held, seed=0)
    if not identified:
        return []
    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    axes = figure.subplots()
    for one in identified:
        if one["job"]["way"] != FOURIER and one["result"]["history"]:
            times, masses = zip(*one["result"]["history"], strict=True)
            axes.plot(times, masses, "o-", markersize=3.0, label=_WAY_NAMES[one["job"]["way"]])
    for name in ("adap-1", "adap-1-excit", "adap-2", "adap-2-excit"):
        for one in of_kind(entries, "task", method=name, experiment="b", dumbbell=held, seed=0):
            times, masses = zip(*one["result"]["masses"], strict=True)
            axes.plot(times, masses, linewidth=1.0, label=name)
    axes.axhline(identified[0]["result"]["truth"][0], color="0.3", linestyle="--", label="truth")
    axes.set_xlabel("time [s]")
    axes.set_ylabel("mass [kg]")
    axes.legend(fontsize=8)
    return [("safe_id_figure_5", figure, "As Figure 5: estimated mass of the 4 lb dumbbell over time, Experiment (b).")]


def _draw_bounds(entries: Sequence[Entry]) -> list[tuple[str, Figure, str]]:
    runs = of_kind(entries, "identify", seed=0)
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
        tasks = [
            one
            for one in of_kind(entries, "task", experiment=experiment, seed=0)
            if one["job"]["dumbbell"] == DUMBBELLS[-1] and "shown" in one["result"]
        ]
        if not tasks:
            continue
        figure = Figure(figsize=(11.0, 2.0 + 1.1 * len(tasks)), layout="constrained")
        for row, one in zip(figure.subplots(len(tasks), 2, sharex=True, squeeze=False), tasks, strict=True):
            shown = one["result"]["shown"]
            row[0].plot(shown["t"], 1e3 * np.array(shown["error"]), linewidth=0.8)
            row[0].set_ylabel(one["job"]["method"], fontsize=7, rotation=0, ha="right")
            row[1].plot(shown["t"], shown["torque"], linewidth=0.8)
            for axes in row:
                axes.tick_params(labelsize=6)
        figure.axes[0].set_title("tracking errors [mrad]", fontsize=9)
        figure.axes[1].set_title("commanded torques [Nm]", fontsize=9)
        caption = f"As Figure {number}: tracking errors and torques of all joints with 8 lb, Experiment ({experiment})."
        found.append((f"safe_id_figure_{number}", figure, caption))
    return found
