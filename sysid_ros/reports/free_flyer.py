"""Files of the identification of a free-flying robot: YAML and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.free_floating.procedure import FreeFlyerIdentification
from sysid_ros.reports import pages
from sysid_ros.reports.writer import software_versions

Array = NDArray[np.float64]

ESTIMATE, REPORT, RECORDING = "estimate.yaml", "report.html", "recording.mcap"
_WIDTH = 760.0


def write_free_flyer(result: FreeFlyerIdentification, directory: Path, truth: ArrayLike | None = None) -> None:
    """Write estimate and page of an identification.

    Args:
        result: What was identified.
        directory: An existing folder.
        truth: True inertial parameters of a simulated robot, (10 B,), for comparison.

    Raises:
        SysidError: A file cannot be written.
    """
    true = None if truth is None else result.minimal.values(truth)
    for name, text in ((ESTIMATE, free_flyer_yaml(result, true)), (REPORT, free_flyer_html(result, true))):
        try:
            (directory / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SysidError(f"cannot write {directory / name}: {error.strerror or error}") from error


def free_flyer_yaml(result: FreeFlyerIdentification, truth: Array | None) -> str:
    """Return the estimate as YAML, each number with its unit."""
    rows = []
    for k, name in enumerate(result.minimal.names):
        row: dict[str, Any] = {
            "name": name,
            "combination": result.minimal.describe(k),
            "unit": result.minimal.units[k],
            "value": float(result.estimate.values[k]),
            "standard_deviation": float(result.estimate.deviations[k]),
            "before": float(result.believed[k]),
        }
        if truth is not None:
            row["truth"] = float(truth[k])
        rows.append(row)
    content = {
        "robot": result.robot.name,
        "method": result.settings.method.value,
        "samples": len(result.data),
        "seconds": round(float(sum(part.end - part.begin for part in result.parts)), 3),
        "condition_number": float(result.condition_number),
        "residual": {
            "linear_momentum": {"unit": "kg m/s", "rms": float(result.residual[0])},
            "angular_momentum": {"unit": "kg m^2/s", "rms": float(result.residual[1])},
        },
        "momentum": {
            "is_known_to_be_zero": result.settings.is_momentum_zero,
            "units": "kg m/s, kg m^2/s",
            "values": result.estimate.momentum.tolist(),
        },
        "parts": [
            {
                "intervals": part.intervals,
                "condition_number_planned": float(part.planned),
                "condition_number_reached": float(part.reached),
            }
            for part in result.parts
        ],
        "minimal_parameters": rows,
        "versions": software_versions(),
    }
    head = "# Minimal parameters of a free-flying robot: what determines its momentum, see docs/howto/space_robot.md\n"
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def free_flyer_html(result: FreeFlyerIdentification, truth: Array | None) -> str:
    """Return the page as one text; it loads nothing from anywhere."""
    estimate, minimal = result.estimate, result.minimal
    rows = [
        {
            "name": minimal.describe(k),
            "unit": minimal.units[k],
            "value": f"{estimate.values[k]:.4g}",
            "deviation": f"{estimate.deviations[k]:.2g}",
            "before": f"{result.believed[k]:.4g}",
            "truth": "" if truth is None else f"{truth[k]:.4g}",
        }
        for k in range(minimal.count)
    ]
    facts = [
        ("Minimal parameters", str(minimal.count), "", f"of {minimal.matrix.shape[1]} inertial parameters"),
        ("Condition number", f"{result.condition_number:.0f}", "", "of all data"),
        ("Samples", str(len(result.data)), "", f"in {len(result.parts) or 'unknown'} parts of the motion"),
        ("Momentum left", f"{1e3 * result.residual[0]:.2g}", "g m/s", f"and {1e3 * result.residual[1]:.2g} g m²/s"),
    ]
    if truth is not None:
        errors = np.abs(estimate.values - truth) / np.abs(truth)
        facts.append(("Median error", f"{100 * np.median(errors):.2g}", "%", "against the simulated robot"))
    return pages.render(
        "free_flyer.html",
        name=result.robot.name,
        facts=facts,
        rows=rows,
        has_truth=truth is not None,
        parts=[
            (k + 1, part.intervals, f"{part.planned:.0f}", f"{part.reached:.0f}", f"{part.gap:.3f}")
            for k, part in enumerate(result.parts)
        ],
        figure=_figure(result, truth),
        method=result.settings.method.value,
        settings={
            "intervals": result.settings.intervals,
            "initial momentum": "known to be zero" if result.settings.is_momentum_zero else "estimated",
            **software_versions(),
        },
    )


def _figure(result: FreeFlyerIdentification, truth: Array | None) -> str:
    data = result.data
    with pages.styled():
        figure, grid = pages.make_axes(2, 2, _WIDTH, 460.0)
        times = np.arange(len(data)) * float(np.median(np.diff(data.times)))
        for axes, values, label in (
            (grid[0, 0], 1e3 * data.base_twist[:, :3], "base velocity [mm/s]"),
            (grid[0, 1], 1e3 * data.base_twist[:, 3:], "base angular velocity [mrad/s]"),
            (grid[1, 0], data.q, "joint positions [rad]"),
        ):
            axes.plot(times, values, linewidth=0.9)
            axes.set(xlabel="time in motion [s]", ylabel=label)
        axes, numbers = grid[1, 1], np.arange(1, result.minimal.count + 1)
        scale = np.maximum(np.abs(result.estimate.values), 1e-12)
        axes.semilogy(numbers, np.abs(result.believed - result.estimate.values) / scale, "o", color=pages.ACCENT,
                      markersize=3, label="change from before")  # fmt: skip
        axes.semilogy(numbers, result.estimate.deviations / scale, "_", color=pages.WARN, label="standard deviation")
        if truth is not None:
            wrong = np.abs(result.estimate.values - truth) / np.maximum(np.abs(truth), 1e-12)
            axes.semilogy(numbers, np.maximum(wrong, 1e-9), "x", color=pages.TRUTH, markersize=4, label="true error")
        axes.set(xlabel="minimal parameter", ylabel="relative [-]")
        pages.add_legend(figure, 3)
        return pages.inline_svg(figure, "motion", "motion of base and joints, and what was learnt")
