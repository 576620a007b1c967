"""The plots of the report; each function takes the result and returns an HTML element, or None without its data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.reports import plots
from sysid_ros.reports.plots import Key, Plot, envelope
from sysid_ros.reports.result import IdentificationResult
from sysid_ros.reports.torque_fit import explained_torque

Array = NDArray[np.float64]

SOURCES = {"prior": "known before the last windows: prior, earlier windows, real bodies"}
"""What sources of error are called, where not by their names."""


def convergence(result: IdentificationResult) -> str | None:
    """Bounds and point estimate of every parameter over time, with prior and (simulation) truth."""
    if not np.isfinite(result.history.lower).any():  # before the first window, or nothing but an alarm
        return None
    drawn = [_converge(result, i) for i in range(len(PARAMETER_NAMES))]
    keys = [
        Key("bounds", plots.BAND, "band"),
        Key("estimate", plots.ACCENT),
        Key("prior", plots.PRIOR, dash=plots.DASHED),
    ]
    if result.truth is not None:
        keys.append(Key("truth (simulation)", plots.TRUTH, dash=plots.LONG))
    return plots.inline_plots("convergence", "Bounds of the ten parameters shrinking over time", drawn, keys)


def _converge(result: IdentificationResult, i: int) -> Plot:
    history, prior = result.history, result.prior
    lower, upper = history.lower[:, i], history.upper[:, i]
    plot = Plot(f"{PARAMETER_NAMES[i]} [{PARAMETER_UNITS[i].replace('^2', '²')}]")
    plot.band(history.time, lower, upper, plots.BAND, is_step=True)
    plot.step(history.time, upper, plots.ACCENT, 0.9, "upper")
    plot.step(history.time, history.values[:, i], plots.ACCENT, 1.8, "estimate")
    plot.step(history.time, lower, plots.ACCENT, 0.9, "lower")
    for border in (prior.lower[i], prior.upper[i]):
        plot.level(border, plots.PRIOR, 1.0, plots.DASHED)
    if result.truth is not None:
        plot.level(result.truth[i], plots.TRUTH, 1.2, plots.LONG)
    plot.x.start = 0.0
    return plot


def shrinkage(result: IdentificationResult) -> str | None:
    """Width of the bounds over the prior's, every parameter over time, in a plot for each kind."""
    history, prior = result.history, result.prior.width
    if not np.isfinite(history.lower).any():
        return None
    kinds = {"mass": [0], "first moments": [1, 2, 3], "inertias": [4, 5, 6, 7, 8, 9]}
    names: list[list[str]] = [[] for _ in range(6)]
    drawn = []
    for kind, members in kinds.items():
        plot = Plot(f"width, prior = 1: {kind}", logs="y")
        for k, i in enumerate(members):
            names[k].append(PARAMETER_NAMES[i])
            with np.errstate(divide="ignore", invalid="ignore"):
                share = (history.upper - history.lower)[:, i] / prior[i]
            plot.step(history.time, share, plots.SERIES[k], label=PARAMETER_NAMES[i])
        plot.x.start = 0.0
        drawn.append(plot)
    keys = [Key(", ".join(n), c) for c, n in zip(plots.SERIES, names, strict=False)]
    return plots.inline_plots("shrinkage", "Width of the bounds of each parameter relative to its prior", drawn, keys)


def torque_fit(result: IdentificationResult) -> str | None:
    """Measured and predicted torque of every joint, and their difference beside the explained part."""
    samples, predicted = result.samples, result.predicted_tau
    if samples is None or predicted is None or len(samples) == 0:
        return None
    seconds, names, sensors = samples.seconds, result.robot.joint_names, result.robot.sensors
    picked, explained = explained_torque(result)
    drawn = []
    for j in range(samples.n):
        fit = Plot(f"{names[j]}: torque [Nm]", plots.WIDE)
        rest = Plot(f"{names[j]}: measured minus predicted [Nm]", plots.WIDE)
        measured = samples.tau[:, j]
        claimed = sensors.effort_relative_error[j] * np.abs(measured) + sensors.effort_absolute_error[j]
        fit.line(*envelope(seconds, measured), plots.PRIOR, 2.6, label="measured")
        fit.line(*envelope(seconds, predicted[:, j]), plots.ACCENT, 1.1, label="predicted")
        rest.band(*_band(seconds[picked], explained[:, j]), plots.PRIOR, 0.18)
        rest.band(*_band(seconds, claimed), plots.PRIOR, 0.4)
        rest.line(*envelope(seconds, measured - predicted[:, j]), plots.ACCENT, 0.9, label="difference")
        for plot in (fit, rest):
            _over(plot, seconds)
        drawn += [fit, rest]
    model = "by the identified model" if result.is_usable else "with a fit to all windows (diagnosis)"
    keys = [
        Key("measured", plots.PRIOR, width=2.6),
        Key(f"predicted {model}", plots.ACCENT),
        Key("largest error of the torque sensor", plots.PRIOR, "band", opacity=0.5),
        Key("with the uncertainty of arm and payload", plots.PRIOR, "band", opacity=0.2),
    ]
    description = "Measured and predicted torque of each joint, and their difference"
    return plots.inline_plots("torque", description, drawn, keys)


def _over(plot: Plot, seconds: Array) -> None:
    plot.x.start, plot.x.end = float(seconds[0]), float(max(seconds[-1], seconds[0] + 1e-3))


def _band(x: Array, half_width: Array) -> tuple[Array, Array, Array]:
    x, upper = envelope(x, half_width, 200)
    return x, -upper, upper


def windows(result: IdentificationResult) -> str | None:
    """Residual of every window beside the allowed one, a plot for each joint."""
    check = result.windows
    if check is None or check.times.size == 0:
        return None
    drawn = []
    for j in range(check.residual.shape[1]):
        plot = Plot(f"{result.robot.joint_names[j]} [Nm]")
        residual, allowed = check.residual[:, j], check.allowed[:, j]
        bad = np.abs(residual) > allowed
        plot.band(check.times, -allowed, allowed, plots.PRIOR, 0.35)
        plot.marks(check.times[~bad], residual[~bad], plots.ACCENT, size=1.4)
        plot.marks(check.times[bad], residual[bad], plots.TRUTH, "square", 2.2)
        drawn.append(plot)
    keys = [
        Key("residual of a window", plots.ACCENT, "dot"),
        Key("contradicts", plots.TRUTH, "square"),
        Key("what the assumptions allow", plots.PRIOR, "band", opacity=0.35),
    ]
    return plots.inline_plots("windows", "Residual of every momentum window beside what is allowed", drawn, keys)


def motion(result: IdentificationResult) -> str | None:
    """Positions and velocities of all joints, measured, with the desired ones where known."""
    samples = result.samples
    if samples is None or len(samples) == 0:
        return None
    seconds, names = samples.seconds, result.robot.joint_names
    rows = [("position [rad]", samples.q, result.reference_q), ("velocity [rad/s]", samples.v, result.reference_v)]
    colors = [plots.SERIES[j % len(plots.SERIES)] for j in range(samples.n)]
    drawn = []
    for label, measured, desired in rows:
        plot = Plot(label, plots.WIDE)
        for j, (name, color) in enumerate(zip(names, colors, strict=True)):
            plot.line(*envelope(seconds, measured[:, j], 300), color, label=name)
            if desired is not None:
                plot.line(*envelope(seconds, desired[:, j], 300), plots.INK, 0.5, dash=plots.DOTTED)
        _over(plot, seconds)
        _mark_plans(plot, result)
        drawn.append(plot)
    keys = [Key(name, color) for name, color in zip(names, colors, strict=True)]
    if result.reference_q is not None:
        keys.append(Key("desired", plots.INK, width=0.7, dash=plots.DOTTED))
    return plots.inline_plots("motion", "Joint positions and velocities over time", drawn, keys)


def _mark_plans(plot: Plot, result: IdentificationResult) -> None:
    followed = [(k, one) for k, one in enumerate(result.motions, start=1) if one.followed is None or one.followed > 0.0]
    starts = [one.start for _, one in followed]
    for number, one in followed:
        plot.instant(one.start, str(number))
        end = one.start + (one.trajectory.duration if one.followed is None else one.followed)
        if not any(abs(end - start) < 1e-6 for start in starts):
            plot.instant(end, dash=plots.DOTTED)


def excitation(result: IdentificationResult) -> str | None:
    """Draw the information of the data: singular values of the windows over the prior, and the condition number."""
    is_seen = result.information is not None and np.any(result.information)
    if not is_seen and not np.isfinite(result.history.condition_number).any():
        return None
    history = result.history
    condition = Plot("condition number of the stacked windows [-]", plots.WIDE, logs="y")
    finite = np.isfinite(history.condition_number)
    condition.step(history.time[finite], history.condition_number[finite], plots.ACCENT, label="condition number")
    description = "Singular values of the data and condition number over time"
    return plots.inline_plots("excitation", description, [_singular_values(result), condition])


def _singular_values(result: IdentificationResult) -> Plot:
    plot = Plot("effect of the ten directions, in prior half widths [Nm]", plots.WIDE, x_label="direction", logs="y")
    if result.information is None:
        plot.note = "not recorded"
        return plot
    scale = 0.5 * result.prior.width
    eigenvalues = np.linalg.eigvalsh(scale[:, None] * result.information * scale)[::-1]
    values = np.sqrt(np.maximum(eigenvalues, 0.0))
    plot.stems(values, values > 1e-9 * max(values[0], 1e-300))
    return plot


def error_budget(result: IdentificationResult) -> str | None:
    """Share of every source of error in the half width of the bounds, one bar per parameter."""
    budget = {name: share for name, share in result.estimate.error_budget.items() if np.any(share > 0.0)}
    total = sum(budget.values(), np.zeros(10))
    if not budget or not np.all(np.isfinite(total)) or not np.any(total > 0.0):
        return None
    ordered = sorted(budget.items(), key=lambda item: -float(np.sum(item[1] / np.maximum(total, 1e-300))))
    shown = ordered[: len(plots.SERIES) - 1]
    rest = sum((share for _, share in ordered[len(shown) :]), np.zeros(10))
    if rest.any():
        shown.append(("all others", rest))
    plot = Plot("", (430.0, 280.0), 40.0, "share of the half width of the bounds [%]")
    plot.y_names, left, keys = PARAMETER_NAMES, np.zeros(10), []
    plot.x.start, plot.x.end = 0.0, 100.0
    for color, (name, share) in zip(plots.SERIES, shown, strict=False):
        end = left + 100.0 * share / np.maximum(total, 1e-300)
        plot.bars(left, end, color)
        keys.append(Key(SOURCES.get(name, name.replace("_", " ")), color, "band"))
        left = end
    return plots.inline_plots("budget", "Share of each source of error in the bounds of each parameter", [plot], keys)
