"""Tables and figures of the experiments of EXCITE, made from their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sysid_ros.papers import names
from sysid_ros.papers.guided_arm import DRIFT_TIME
from sysid_ros.papers.tables import Entry, Table, cost_tables, median_and_worst, save_figures, select

_PAPER_MOTIONS = (
    ("paper: r_c", 600.0, "3 starts", "-", 51.0, *["-"] * 5, "within 1e-3", "-"),
    ("paper: condition number", "> 3600", *["-"] * 10),
    ("paper: memetic", "-", "40000 iterations", "-", 57890.0, *["-"] * 7),
)
_PAPER_LARGEST = (1.5, *["-"] * 5, 0.5)
"""Largest torque errors of the first and the last joint [Nm]."""
_BANDS = "all", "below 3 Hz"
_COLORS = {"measured": "0.6", names.URDF: "tab:orange", names.CONTROLLER: "tab:red", names.IDENTIFIED: "tab:blue"}


def tables(entries: Sequence[Entry]) -> list[Table]:
    """Return the tables of all experiments that have results."""
    found = [*_motion_tables(entries), *_torque_tables(entries), *_guiding_tables(entries)]
    found += cost_tables(entries, lambda job: str(job["experiment"]))
    return [table for table in found if table.rows]


def verdict(entries: Sequence[Entry]) -> str:
    """Return the conclusions, unfavourable ones first."""
    found = {one["job"]["way"]: one["result"] for one in select(entries, experiment=names.MOTIONS)}
    parts = []
    if found.keys() == set(names.EXCITE_WAYS):
        printed, mean, _, direct, memetic, ours = (f"{found[way]['condition_number']:.3g}" for way in names.EXCITE_WAYS)
        parts.append(
            f"In {found[names.R_C]['seconds']:.0f} s each, r_c as printed reaches a condition number of {printed}, as "
            f"a mean over rows {mean}, and the condition number itself {direct} (paper: 51 in ten minutes, over an "
            f"hour for the condition number); differential evolution, in place of its memetic search (57890), "
            f"{memetic}. They keep the paper's limits, our motion of {ours} also limits of acceleration and torque: "
            f"{found[names.CERTIFIED]['proof']}."
        )
    for one in select(entries, experiment=names.TORQUES):
        slow = (one["result"]["rms"][name][1] for name in (names.URDF, names.IDENTIFIED))
        before, after = (f"{min(rms):.2g} to {max(rms):.2g}" for rms in slow)
        parts.append(f"On a real Med7 RMS torque errors below 3 Hz fall from {before} Nm to {after} Nm per joint.")
    guided = {
        model: [one["result"] for one in select(entries, experiment=names.GUIDING) if one["job"]["model"] == model]
        for model in (names.IDENTIFIED, names.VENDOR_LIKE)
    }
    if all(guided.values()):
        drifts = (f"{max(one['drift'] for one in runs):.2g} mm" for runs in guided.values())
        ways = (f"{np.median([one['off_axis'] for one in runs]):.2g}" for runs in guided.values())
        parts.append(
            f"Without a hand the tool drifts up to {' with the identified and '.join(drifts)} with the vendor-like "
            f"model; in the trocar it is off its axis by {' and '.join(ways)} mm (median)."
        )
    return " ".join(parts) or "No experiment has results."


def _motion_tables(entries: Sequence[Entry]) -> list[Table]:
    rows: list[tuple[object, ...]] = []
    by_way = {entry["job"]["way"]: entry["result"] for entry in select(entries, experiment=names.MOTIONS)}
    for way in (way for way in names.EXCITE_WAYS if way in by_way):
        one = by_way[way]
        tries = f"{one['tries']} {'evaluations' if way == names.MEMETIC else 'starts'}"
        shares = (f"{100 * one[name]:.0f} %" for name in ("position", "velocity", "acceleration", "torque"))
        kept = one["distance"] >= 0.0 and max(one[name] for name in ("position", "velocity")) <= 1.0
        distance = f"{1e3 * one['distance']:.0f}"
        limits = "paper's kept" if kept else "broken"
        numbers = one["seconds"], tries, f"{one['r_c']:.3g}", one["condition_number"]
        rows.append((way, *numbers, *shares, distance, limits, one["proof"]))
    columns = (
        "search, criterion", "CPU time [s]", "tries", "r_c", "cond Y_b", "position", "speed", "acceleration", "torque",
        "distance left [mm]", "limits", "certified",
    )  # fmt: skip
    title = (
        "Motions of 10 s of a Med7 with a tool, searched for in two stages unless said: largest shares of limits at "
        "dense samples; the paper has none of acceleration and torque"
    )
    return [Table(title, columns, (*_PAPER_MOTIONS, *rows) if rows else ())]


def _torque_tables(entries: Sequence[Entry]) -> list[Table]:
    found = []
    for entry in select(entries, experiment=names.TORQUES):
        result = entry["result"]
        rows: list[tuple[object, ...]] = []
        for what in ("rms", "largest"):
            for name, bands in result[what].items():
                rows += [(f"{name}, {what}", band, *one) for band, one in zip(_BANDS, bands, strict=True)]
        rows.append(("paper, largest", "-", *_PAPER_LARGEST))
        title = f"Torque errors on a real Med7 [Nm], {result['duration']:.3g} s, each half predicted from the other"
        found.append(Table(title, ("model", "frequencies", *result["joints"]), tuple(rows)))
    return found


def _guiding_tables(entries: Sequence[Entry]) -> list[Table]:
    rows = []
    for model in names.GUIDING_MODELS:
        runs = [entry for entry in select(entries, experiment=names.GUIDING) if entry["job"]["model"] == model]
        if runs:
            rms = " ".join(f"{one:.2g}" for one in runs[0]["job"]["rms"])
            found = [entry["result"] for entry in runs]
            docked = [one["docked"] for one in found if one["docked"] is not None]
            forces = zip(*(one["forces"] for one in found), strict=True)
            several = ([one[name] for one in found] for name in ("drift", "turned", "off_axis"))
            cells = ("{:.3g} ({:.3g})".format(*median_and_worst(one)) for one in (*several, *forces, docked))
            rows.append((model, rms, len(runs), *cells, len(docked)))
    columns = (
        "model", "RMS torque errors [Nm]", "arms", f"drift in {DRIFT_TIME:g} s [mm]", "turned [deg]", "off axis [mm]",
        "mean force [N]", "largest force [N]", "docked after [s]", "docked",
    )  # fmt: skip
    title = "Guiding with models that err as on real arms: median (largest); dead zone 2 N, 0.1 Nm"
    return [Table(title, columns, tuple(rows))]


def draw_figures(entries: Sequence[Entry], folder: Path) -> list[tuple[Path, str]]:
    """Draw torques and friction of the real arm, and guiding.

    Returns:
        Files and captions.
    """
    return save_figures([*_draw_torques(entries), *_draw_guiding(entries)], folder)


def _draw_torques(entries: Sequence[Entry]) -> Iterator[tuple[str, Figure, str]]:
    for entry in select(entries, experiment=names.TORQUES):
        result = entry["result"]
        shown = {name: np.array(values) for name, values in result["shown"].items()}
        torques, friction = (Figure(figsize=size, layout="constrained") for size in ((10.0, 11.0), (10.0, 5.0)))
        panels = torques.subplots(len(result["joints"]), 1, sharex=True)
        for joint, (axes, name) in enumerate(zip(panels, result["joints"], strict=True)):
            for model in (one for one in _COLORS if one in shown):
                axes.plot(shown["t"], shown[model][:, joint], color=_COLORS[model], linewidth=1.0, label=model)
            axes.set_ylabel(f"{name} [Nm]")
        panels[0].legend(loc="upper right", ncols=4, fontsize=8)
        panels[-1].set_xlabel("time [s]")
        yield (
            "excite_figure_4",
            torques,
            "As Figure 4: measured and predicted torques of a real Med7, each half from a fit of the other.",
        )
        for joint, (axes, name) in enumerate(zip(friction.subplots(2, 4).flat, result["joints"], strict=False)):
            v = np.abs(shown["v"][:, joint]).max() * np.linspace(-1.0, 1.0, 200)
            axes.plot(shown["v"][:, joint], shown["friction"][:, joint], ".", color="0.7", markersize=2.0)
            for law, style in zip(result["laws"], ("-", "--"), strict=True):
                coulomb, viscous, offset, before = law[joint]
                axes.plot(v, (coulomb + before) * np.sign(v) + viscous * v + offset, style, color="tab:blue")
            axes.set_title(name, fontsize=9)
            axes.set_xlabel("velocity [rad/s]", fontsize=8)
        friction.axes[0].set_ylabel("friction [Nm]")
        friction.axes[-1].set_axis_off()
        yield (
            "excite_friction",
            friction,
            "Friction of a real Med7 in its torque signal: measured torque less the bodies' torque, below 3 Hz (dots), "
            "and the laws fitted to the first (line) and the second half (dashed).",
        )


def _draw_guiding(entries: Sequence[Entry]) -> Iterator[tuple[str, Figure, str]]:
    runs = select(entries, experiment=names.GUIDING)
    if not runs:
        return
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for entry in runs:
        model, shown = entry["job"]["model"], entry["result"]["shown"]
        label = model if entry["job"]["seed"] == runs[0]["job"]["seed"] else None
        style = {"color": f"C{names.GUIDING_MODELS.index(model)}", "linewidth": 1.0, "label": label}
        left.plot(np.linspace(0.0, DRIFT_TIME, len(shown["drift"])), shown["drift"], **style)
        right.plot(*np.array(shown["path"]).reshape(-1, 2).T, **style)
    left.set_yscale("symlog", linthresh=0.1)
    left.set_ylim(bottom=0.0)
    left.set_xlabel("time without a hand [s]")
    left.set_ylabel("drift [mm]")
    right.set_xlabel("depth in the trocar [mm]")
    right.set_ylabel("off axis [mm]")
    right.legend(loc="best", fontsize="small")
    yield "excite_guiding", figure, "Drift without a hand, and the tip in the trocar, a line for each arm and tool."
