"""The plots of the report; each function takes the result and returns an HTML element, or None without its data."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.reports import pages
from sysid_ros.reports.result import IdentificationResult
from sysid_ros.reports.torque_fit import explained_torque

Array = NDArray[np.float64]

SOURCES = {"prior": "known before the last windows: prior, earlier windows, real bodies"}
"""What sources of error are called, where not by their names."""


def convergence(result: IdentificationResult) -> str | None:
    """Bounds and point estimate of every parameter over time, with prior and (simulation) truth."""
    if not np.isfinite(result.history.lower).any():  # before the first window, or nothing but an alarm
        return None
    with pages.styled():
        plots = [_converge(pages.make_plot(), result, i) for i in range(len(PARAMETER_NAMES))]
        handles: list[Artist] = [
            Patch(facecolor=pages.BAND, edgecolor="none", label="bounds"),
            Line2D([], [], color=pages.ACCENT, label="estimate"),
            Line2D([], [], color=pages.PRIOR, linestyle=(0, (3, 2)), label="prior"),
        ]
        if result.truth is not None:
            handles.append(Line2D([], [], color=pages.TRUTH, linestyle=(0, (6, 2)), label="truth (simulation)"))
        return pages.inline_plots("convergence", "Bounds of the ten parameters shrinking over time", plots, handles)


def _converge(axes: Axes, result: IdentificationResult, i: int) -> Axes:
    history, prior = result.history, result.prior
    lower, upper = history.lower[:, i], history.upper[:, i]
    axes.fill_between(history.time, lower, upper, step="post", color=pages.BAND, linewidth=0)
    axes.step(history.time, upper, where="post", color=pages.ACCENT, linewidth=0.9, label="upper")
    axes.step(history.time, history.values[:, i], where="post", color=pages.ACCENT, linewidth=1.8, label="estimate")
    axes.step(history.time, lower, where="post", color=pages.ACCENT, linewidth=0.9, label="lower")
    for border in (prior.lower[i], prior.upper[i]):
        axes.axhline(border, color=pages.PRIOR, linewidth=1.0, linestyle=(0, (3, 2)))
    if result.truth is not None:
        axes.axhline(result.truth[i], color=pages.TRUTH, linewidth=1.2, linestyle=(0, (6, 2)))
    axes.set_title(f"{PARAMETER_NAMES[i]} [{PARAMETER_UNITS[i].replace('^2', '²')}]")
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlim(left=0.0)
    pages.show_seconds(axes)
    return axes


def shrinkage(result: IdentificationResult) -> str | None:
    """Width of the bounds over that of the prior, every parameter over time, in a plot for each kind."""
    history, prior = result.history, result.prior.width
    if not np.isfinite(history.lower).any():
        return None
    with pages.styled():
        kinds = {"mass": [0], "first moments": [1, 2, 3], "inertias": [4, 5, 6, 7, 8, 9]}
        names: list[list[str]] = [[] for _ in range(6)]
        plots = []
        for kind, members in kinds.items():
            axes = pages.make_plot()
            for k, i in enumerate(members):
                names[k].append(PARAMETER_NAMES[i])
            for color, i in zip(pages.SERIES, members, strict=False):
                with np.errstate(divide="ignore", invalid="ignore"):
                    share = (history.upper - history.lower)[:, i] / prior[i]
                axes.step(history.time, share, where="post", color=color, label=PARAMETER_NAMES[i])
            pages.label_log_axis(axes)
            axes.set_xlim(left=0.0)
            pages.show_seconds(axes)
            axes.set_title(f"width, prior = 1: {kind}")
            plots.append(axes)
        handles = [Line2D([], [], color=c, label=", ".join(n)) for c, n in zip(pages.SERIES, names, strict=False)]
        description = "Width of the bounds of each parameter relative to its prior"
        return pages.inline_plots("shrinkage", description, plots, handles)


def torque_fit(result: IdentificationResult) -> str | None:
    """Measured and predicted torque of every joint, and their difference beside what the assumptions explain of it."""
    samples, predicted = result.samples, result.predicted_tau
    if samples is None or predicted is None or len(samples) == 0:
        return None
    seconds, names, sensors = samples.seconds, result.robot.joint_names, result.robot.sensors
    picked, explained = explained_torque(result)
    with pages.styled():
        plots = []
        for j in range(samples.n):
            fit, rest = pages.make_plot(pages.WIDE), pages.make_plot(pages.WIDE)
            measured = samples.tau[:, j]
            claimed = sensors.effort_relative_error[j] * np.abs(measured) + sensors.effort_absolute_error[j]
            fit.plot(*pages.envelope(seconds, measured), color=pages.PRIOR, linewidth=2.6, label="measured")
            fit.plot(*pages.envelope(seconds, predicted[:, j]), color=pages.ACCENT, linewidth=1.1, label="predicted")
            rest.fill_between(*_band(seconds[picked], explained[:, j]), color=pages.PRIOR, alpha=0.18, linewidth=0)
            rest.fill_between(*_band(seconds, claimed), color=pages.PRIOR, alpha=0.4, linewidth=0)
            difference = pages.envelope(seconds, measured - predicted[:, j])
            rest.plot(*difference, color=pages.ACCENT, linewidth=0.9, label="difference")
            fit.set_title(f"{names[j]}: torque [Nm]")
            rest.set_title(f"{names[j]}: measured minus predicted [Nm]")
            for axes in (fit, rest):
                axes.yaxis.set_major_locator(MaxNLocator(4))
                axes.set_xlim(seconds[0], max(seconds[-1], seconds[0] + 1e-3))
                pages.show_seconds(axes)
            plots += [fit, rest]
        handles: list[Artist] = [
            Line2D([], [], color=pages.PRIOR, linewidth=2.6, label="measured"),
            Line2D([], [], color=pages.ACCENT, label=_predicted_by(result)),
            Patch(facecolor=pages.PRIOR, alpha=0.5, edgecolor="none", label="largest error of the torque sensor"),
            Patch(facecolor=pages.PRIOR, alpha=0.2, edgecolor="none", label="with the uncertainty of arm and payload"),
        ]
        description = "Measured and predicted torque of each joint, and their difference"
        return pages.inline_plots("torque", description, plots, handles)


def _predicted_by(result: IdentificationResult) -> str:
    return (
        "predicted by the identified model" if result.is_usable else "predicted with a fit to all windows (diagnosis)"
    )


def _band(x: Array, half_width: Array) -> tuple[Array, Array, Array]:
    x, upper = pages.envelope(x, half_width, 200)
    return x, -upper, upper


def windows(result: IdentificationResult) -> str | None:
    """Residual of every window beside what the assumptions allow, a plot for each joint."""
    check = result.windows
    if check is None or check.times.size == 0:
        return None
    with pages.styled():
        plots = []
        for j in range(check.residual.shape[1]):
            axes = pages.make_plot()
            residual, allowed = check.residual[:, j], check.allowed[:, j]
            bad = np.abs(residual) > allowed
            axes.fill_between(check.times, -allowed, allowed, color=pages.PRIOR, alpha=0.35, linewidth=0)
            axes.plot(check.times[~bad], residual[~bad], "o", color=pages.ACCENT, markersize=2.8)
            axes.plot(check.times[bad], residual[bad], "s", color=pages.TRUTH, markersize=4.5)
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.set_title(f"{result.robot.joint_names[j]} [Nm]")
            pages.show_seconds(axes)
            plots.append(axes)
        style: dict[str, Any] = {"linestyle": "none"}
        handles: list[Artist] = [
            Line2D([], [], color=pages.ACCENT, marker="o", label="residual of a window", **style),
            Line2D([], [], color=pages.TRUTH, marker="s", label="contradicts", **style),
            Patch(facecolor=pages.PRIOR, alpha=0.35, edgecolor="none", label="what the assumptions allow"),
        ]
        description = "Residual of every momentum window beside what is allowed"
        return pages.inline_plots("windows", description, plots, handles)


def motion(result: IdentificationResult) -> str | None:
    """Positions and velocities of all joints, measured, with the desired ones where known."""
    samples = result.samples
    if samples is None or len(samples) == 0:
        return None
    seconds, names = samples.seconds, result.robot.joint_names
    rows = [("position [rad]", samples.q, result.reference_q), ("velocity [rad/s]", samples.v, result.reference_v)]
    with pages.styled():
        plots = []
        for label, measured, desired in rows:
            axes = pages.make_plot(pages.WIDE)
            for j in range(samples.n):
                color = pages.SERIES[j % len(pages.SERIES)]
                axes.plot(*pages.envelope(seconds, measured[:, j], 300), color=color, label=names[j])
                if desired is not None:
                    axes.plot(
                        *pages.envelope(seconds, desired[:, j], 300), color=pages.INK, linewidth=0.5, dashes=(2, 3)
                    )
            axes.set_title(label)
            axes.set_xlim(seconds[0], max(seconds[-1], seconds[0] + 1e-3))
            pages.show_seconds(axes)
            _mark_plans(axes, result)
            plots.append(axes)
        handles: list[Artist] = [
            Line2D([], [], color=pages.SERIES[j % len(pages.SERIES)], label=name) for j, name in enumerate(names)
        ]
        if result.reference_q is not None:
            handles.append(Line2D([], [], color=pages.INK, linewidth=0.7, linestyle=(0, (2, 3)), label="desired"))
        return pages.inline_plots("motion", "Joint positions and velocities over time", plots, handles)


def _mark_plans(axes: Axes, result: IdentificationResult) -> None:
    """Draw a line with its number where each plan starts, and one where the arm comes to rest."""
    followed = [(k, one) for k, one in enumerate(result.motions, start=1) if one.followed is None or one.followed > 0.0]
    starts = [one.start for _, one in followed]
    for number, one in followed:
        axes.axvline(one.start, color=pages.MUTED, linewidth=0.8)
        axes.text(one.start, 1.0, f" {number}", transform=axes.get_xaxis_transform(), va="top", color=pages.MUTED)
        end = one.start + (one.trajectory.duration if one.followed is None else one.followed)
        if not any(abs(end - start) < 1e-6 for start in starts):
            axes.axvline(end, color=pages.MUTED, linewidth=0.8, dashes=(1, 2))


def excitation(result: IdentificationResult) -> str | None:
    """Draw what the data see: singular values of the windows, scaled by the prior, and the condition number."""
    is_seen = result.information is not None and np.any(result.information)
    if not is_seen and not np.isfinite(result.history.condition_number).any():
        return None
    with pages.styled():
        first, second = pages.make_plot(pages.WIDE, bottom=40.0), pages.make_plot(pages.WIDE, bottom=40.0)
        _singular_values(first, result)
        history = result.history
        finite = np.isfinite(history.condition_number)
        condition = history.condition_number[finite]
        second.step(history.time[finite], condition, where="post", color=pages.ACCENT, label="condition number")
        pages.label_log_axis(second)
        second.set_title("condition number of the stacked windows [-]")
        pages.show_seconds(second)
        description = "Singular values of the data and condition number over time"
        return pages.inline_plots("excitation", description, [first, second])


def _singular_values(axes: Axes, result: IdentificationResult) -> None:
    axes.set_title("effect of the ten directions, in prior half widths [Nm]")
    axes.set_xlabel("direction")
    if result.information is None:
        axes.text(0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center", color=pages.MUTED)
        return
    scale = 0.5 * result.prior.width
    eigenvalues = np.linalg.eigvalsh(scale[:, None] * result.information * scale)[::-1]
    values = np.sqrt(np.maximum(eigenvalues, 0.0))
    numbers = np.arange(1, values.size + 1)
    shown = values > 1e-9 * max(values[0], 1e-300)
    floor = values[shown].min() / 3 if shown.any() else 1e-3
    axes.vlines(numbers[shown], floor, values[shown], color=pages.ACCENT, linewidth=2.5)
    axes.plot(numbers[shown], values[shown], "o", color=pages.ACCENT, markersize=5)
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor)
    pages.label_log_axis(axes)
    axes.set_xticks(numbers)
    axes.grid(axis="x", visible=False)


def error_budget(result: IdentificationResult) -> str | None:
    """Share of every source of error in the half width of the bounds, one bar per parameter."""
    budget = {name: share for name, share in result.estimate.error_budget.items() if np.any(share > 0.0)}
    total = sum(budget.values(), np.zeros(10))
    if not budget or not np.all(np.isfinite(total)) or not np.any(total > 0.0):
        return None
    ordered = sorted(budget.items(), key=lambda item: -float(np.sum(item[1] / np.maximum(total, 1e-300))))
    shown = ordered[: len(pages.SERIES) - 1]
    rest = sum((share for _, share in ordered[len(shown) :]), np.zeros(10))
    if rest.any():
        shown.append(("all others", rest))
    with pages.styled():
        axes, left = pages.make_plot((430.0, 280.0), left=40.0, bottom=40.0), np.zeros(10)
        handles: list[Artist] = []
        for color, (name, share) in zip(pages.SERIES, shown, strict=False):
            part = 100.0 * share / np.maximum(total, 1e-300)
            axes.barh(PARAMETER_NAMES, part, left=left, color=color, height=0.68)
            handles.append(Patch(facecolor=color, edgecolor="none", label=SOURCES.get(name, name.replace("_", " "))))
            left = left + part
        axes.invert_yaxis()
        axes.set_xlim(0.0, 100.0)
        axes.set_xlabel("share of the half width of the bounds [%]")
        axes.grid(axis="y", visible=False)
        description = "Share of each source of error in the bounds of each parameter"
        return pages.inline_plots("budget", description, [axes], handles)
