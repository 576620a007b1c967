"""The figures of the report; each takes the result and returns an SVG element, or None without its data."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.reports import pages
from sysid_ros.reports.result import IdentificationResult

Array = NDArray[np.float64]

WIDTH = 1040
"""Width of every figure [page units]."""


def convergence(result: IdentificationResult) -> str | None:
    """Bounds and point estimate of every parameter over time, with prior and (simulation) truth."""
    history = result.history
    if history.time.size == 0:
        return None
    with pages.styled():
        figure, grid = pages.make_axes((2, 5), (WIDTH, 440), sharex=True)
        for i, axes in enumerate(grid.ravel()):
            _converge(axes, result, i)
        for axes in grid[-1]:
            axes.set_xlabel("time [s]")
        handles = [
            Patch(facecolor=pages.BAND, edgecolor="none", label="bounds"),
            Line2D([], [], color=pages.ACCENT, label="estimate"),
            Line2D([], [], color=pages.PRIOR, dashes=(3, 2), label="prior"),
        ]
        if result.truth is not None:
            handles.append(Line2D([], [], color=pages.TRUTH, dashes=(6, 2), label="truth (simulation)"))
        pages.add_legend(figure, 4, handles)
        return pages.inline_svg(figure, "convergence", "Bounds of the ten parameters shrinking over time")


def _converge(axes: Axes, result: IdentificationResult, i: int) -> None:
    history, prior = result.history, result.prior
    lower, upper = history.lower[:, i], history.upper[:, i]
    axes.fill_between(history.time, lower, upper, step="post", color=pages.BAND, linewidth=0)
    axes.step(history.time, lower, where="post", color=pages.ACCENT, linewidth=0.9)
    axes.step(history.time, upper, where="post", color=pages.ACCENT, linewidth=0.9)
    axes.step(history.time, history.values[:, i], where="post", color=pages.ACCENT, linewidth=1.8)
    for border in (prior.lower[i], prior.upper[i]):
        axes.axhline(border, color=pages.PRIOR, linewidth=1.0, dashes=(3, 2))
    if result.truth is not None:
        axes.axhline(result.truth[i], color=pages.TRUTH, linewidth=1.2, dashes=(6, 2))
    axes.set_title(f"{PARAMETER_NAMES[i]} [{PARAMETER_UNITS[i].replace('^2', '²')}]")
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlim(left=0.0)


def shrinkage(result: IdentificationResult) -> str | None:
    """Width of the bounds over that of the prior, every parameter over time."""
    history, prior = result.history, result.prior.width
    if history.time.size == 0:
        return None
    with pages.styled():
        figure, grid = pages.make_axes((1, 1), (WIDTH, 280))
        axes = grid[0, 0]
        groups = (("mass", [0], 2.4), ("first moments", [1, 2, 3], 1.4), ("inertias", [4, 5, 6, 7, 8, 9], 1.2))
        for color, (label, members, linewidth) in zip(pages.SERIES, groups, strict=False):
            with np.errstate(divide="ignore", invalid="ignore"):
                widths = (history.upper - history.lower)[:, members] / prior[members]
            lines = axes.step(history.time, widths, where="post", color=color, linewidth=linewidth)
            lines[0].set_label(label)
        pages.label_log_axis(axes)
        axes.set_xlim(left=0.0)
        axes.set_xlabel("time [s]")
        axes.set_title("width of the bounds, prior = 1")
        pages.add_legend(figure, 3)
        return pages.inline_svg(figure, "shrinkage", "Width of the bounds of each parameter relative to its prior")


def torque_fit(result: IdentificationResult) -> str | None:
    """Measured and predicted torque of every joint, and their difference beside the claimed error of the sensor."""
    samples, predicted = result.samples, result.predicted_tau
    if samples is None or predicted is None or len(samples) == 0:
        return None
    seconds, names, sensors = samples.seconds, result.robot.joint_names, result.robot.sensors
    with pages.styled():
        figure, grid = pages.make_axes((samples.n, 2), (WIDTH, 112 * samples.n + 80), (66.0, 12.0), sharex=True)
        for j, (fit, rest) in enumerate(grid):
            measured = samples.tau[:, j]
            claimed = sensors.effort_relative_error[j] * np.abs(measured) + sensors.effort_absolute_error[j]
            fit.plot(*pages.envelope(seconds, measured), color=pages.PRIOR, linewidth=2.6)
            fit.plot(*pages.envelope(seconds, predicted[:, j]), color=pages.ACCENT, linewidth=1.1)
            rest.fill_between(*_band(seconds, claimed), color=pages.PRIOR, alpha=0.35, linewidth=0)
            rest.plot(*pages.envelope(seconds, measured - predicted[:, j]), color=pages.ACCENT, linewidth=0.9)
            fit.set_ylabel(f"{names[j]} [Nm]")
            for axes in (fit, rest):
                axes.yaxis.set_major_locator(MaxNLocator(3))
                axes.set_xlim(seconds[0], seconds[-1])
        grid[0, 0].set_title("torque")
        grid[0, 1].set_title("measured minus predicted")
        for axes in grid[-1]:
            axes.set_xlabel("time [s]")
        handles = [
            Line2D([], [], color=pages.PRIOR, linewidth=2.6, label="measured"),
            Line2D([], [], color=pages.ACCENT, label=_predicted_by(result)),
            Patch(facecolor=pages.PRIOR, alpha=0.35, edgecolor="none", label="claimed error of the torque sensor"),
        ]
        pages.add_legend(figure, 3, handles)
        return pages.inline_svg(figure, "torque", "Measured and predicted torque of each joint, and their difference")


def _predicted_by(result: IdentificationResult) -> str:
    return (
        "predicted by the identified model" if result.is_usable else "predicted with a fit to all windows (diagnosis)"
    )


def _band(x: Array, half_width: Array) -> tuple[Array, Array, Array]:
    x, upper = pages.envelope(x, half_width, 200)
    return x, -upper, upper


def windows(result: IdentificationResult) -> str | None:
    """Residual of every window beside what the assumptions allow, one row per joint."""
    check = result.windows
    if check is None or check.times.size == 0:
        return None
    n = check.residual.shape[1]
    with pages.styled():
        figure, grid = pages.make_axes((-(-n // 2), 2), (WIDTH, 112 * -(-n // 2) + 80), (66.0, 12.0), sharex=True)
        for j, axes in enumerate(grid.ravel()):
            if j >= n:
                axes.set_axis_off()
                continue
            residual, allowed = check.residual[:, j], check.allowed[:, j]
            bad = np.abs(residual) > allowed
            axes.fill_between(check.times, -allowed, allowed, color=pages.PRIOR, alpha=0.35, linewidth=0)
            axes.plot(check.times[~bad], residual[~bad], "o", color=pages.ACCENT, markersize=2.8)
            axes.plot(check.times[bad], residual[bad], "s", color=pages.TRUTH, markersize=4.5)
            axes.yaxis.set_major_locator(MaxNLocator(3))
            axes.set_ylabel(f"{result.robot.joint_names[j]} [Nm]")
        for axes in grid[-1]:
            axes.set_xlabel("time [s]")
        handles = [
            Line2D(
                [], [], color=pages.ACCENT, marker="o", markersize=3.5, linestyle="none", label="residual of a window"
            ),
            Line2D([], [], color=pages.TRUTH, marker="s", markersize=5, linestyle="none", label="contradicts"),
            Patch(facecolor=pages.PRIOR, alpha=0.35, edgecolor="none", label="what the assumptions allow"),
        ]
        pages.add_legend(figure, 3, handles)
        return pages.inline_svg(figure, "windows", "Residual of every momentum window beside what is allowed")


def motion(result: IdentificationResult) -> str | None:
    """Positions and velocities of all joints, measured, with the desired ones where known."""
    samples = result.samples
    if samples is None or len(samples) == 0:
        return None
    seconds = samples.seconds
    rows = [("position [rad]", samples.q, result.reference_q), ("velocity [rad/s]", samples.v, result.reference_v)]
    with pages.styled():
        figure, grid = pages.make_axes((1, 2), (WIDTH, 290), sharex=True)
        for axes, (label, measured, desired) in zip(grid[0], rows, strict=True):
            for j in range(samples.n):
                color = pages.SERIES[j % len(pages.SERIES)]
                axes.plot(*pages.envelope(seconds, measured[:, j], 300), color=color)
                if desired is not None:
                    axes.plot(
                        *pages.envelope(seconds, desired[:, j], 300), color=pages.INK, linewidth=0.5, dashes=(2, 3)
                    )
            axes.set_title(label)
            axes.set_xlabel("time [s]")
            axes.set_xlim(seconds[0], seconds[-1])
            _mark_plans(axes, result)
        handles = [
            Line2D([], [], color=pages.SERIES[j % len(pages.SERIES)], label=name)
            for j, name in enumerate(result.robot.joint_names)
        ]
        if result.reference_q is not None:
            handles.append(Line2D([], [], color=pages.INK, linewidth=0.7, dashes=(2, 3), label="desired"))
        pages.add_legend(figure, len(handles), handles)
        return pages.inline_svg(figure, "motion", "Joint positions and velocities over time")


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
    if result.information is None and result.history.time.size == 0:
        return None
    with pages.styled():
        figure, grid = pages.make_axes((1, 2), (WIDTH, 240), top=26.0)
        _singular_values(grid[0, 0], result)
        axes, history = grid[0, 1], result.history
        finite = np.isfinite(history.condition_number)
        axes.step(history.time[finite], history.condition_number[finite], where="post", color=pages.ACCENT)
        pages.label_log_axis(axes)
        axes.set_title("condition number of the stacked windows [-]")
        axes.set_xlabel("time [s]")
        return pages.inline_svg(figure, "excitation", "Singular values of the data and condition number over time")


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
        figure, grid = pages.make_axes((1, 1), (WIDTH, 300), top=34.0)
        axes, left = grid[0, 0], np.zeros(10)
        for color, (name, share) in zip(pages.SERIES, shown, strict=False):
            part = 100.0 * share / np.maximum(total, 1e-300)
            axes.barh(PARAMETER_NAMES, part, left=left, color=color, height=0.68, label=name.replace("_", " "))
            left = left + part
        axes.invert_yaxis()
        axes.set_xlim(0.0, 100.0)
        axes.set_xlabel("share of the half width of the data-based bounds [%]")
        axes.grid(axis="y", visible=False)
        pages.add_legend(figure, 4)
        return pages.inline_svg(figure, "budget", "Share of each source of error in the bounds of each parameter")
