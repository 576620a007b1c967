"""``report.html``: one self-contained page, the answer first, then what it rests on."""

from __future__ import annotations

import re
from html import escape

import numpy as np

from sysid_ros.core.certification.certificate import MarginRow
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.identifiability.mechanism import PayloadIdentifiability
from sysid_ros.core.identifiability.report import describe_data
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.reports import figures
from sysid_ros.reports.intervals import Bounded
from sysid_ros.reports.payload import PayloadSummary, notices, summarize_payload
from sysid_ros.reports.result import IdentificationResult, MotionRecord
from sysid_ros.reports.style import STYLE


def known_html(result: IdentificationResult) -> str:
    """How many combinations the data determine, which they do not, and which motion would; empty without data."""
    if result.information is None or not np.any(result.information):
        return ""
    try:
        return f"<p>{escape(describe_known(result))}</p>"
    except SysidError as error:
        return f"<p>What the data know cannot be said: {escape(str(error))}.</p>"


def describe_known(result: IdentificationResult) -> str:
    """The same as plain text.

    Raises:
        ParameterOutOfRange: The information is not that of this arm.
    """
    payload = PayloadIdentifiability(result.robot, result.prior)
    box = result.estimate.box if result.is_usable and result.is_rigorous else None
    analysis = payload.analyze(result.information, box)
    samples = result.samples
    speeds = None if samples is None or not len(samples) else np.abs(samples.v).max(axis=0)
    return describe_data(analysis, payload.advise(analysis, result.information, speeds))


def motions_html(result: IdentificationResult) -> str:
    """Tables of the plans, of what their certificates left of every limit, and what they say; empty without plans."""
    if not result.motions:
        return ""
    rows = "".join(
        f"<tr><td>{number}</td><td class='text'>{escape(motion.trajectory.kind)}</td><td>{motion.start:.2f} s</td>"
        f"<td>{motion.trajectory.duration:.2f} s</td><td>{_followed(motion)}</td>"
        f"<td class='text'>{escape(motion.ending)}</td><td>{motion.condition_number:.3g}</td></tr>"
        for number, motion in enumerate(result.motions, start=1)
    )
    head = ["plan", "kind", "start", "planned", "followed", "ended", "condition number"]
    classes = ["", "text", "", "", "", "text", ""]
    header = "".join(f'<th class="{css}">{text}</th>' for text, css in zip(head, classes, strict=True))
    text = (
        "Every plan ends at rest by itself, unless the next one takes over on the way. The condition number is the one "
        "its planner expected of the data."
    )
    table = f"<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<h3>Plans</h3><p>{text}</p><div class='scroll'>{table}</div>{_margins(result)}{_claims(result)}"


def _followed(motion: MotionRecord) -> str:
    return "unknown" if motion.followed is None else f"{motion.followed:.2f} s"


def _margins(result: IdentificationResult) -> str:
    """One row per plan, one column per kind of limit; the smallest margin of each kind stands out."""
    kinds = list(dict.fromkeys(row.kind for motion in result.motions for row in motion.margins))
    if not kinds:
        return ""
    by_plan = [{row.kind: row for row in motion.margins} for motion in result.motions]
    least = {kind: min(rows[kind].margin for rows in by_plan if kind in rows) for kind in kinds}
    body = []
    for number, (motion, rows) in enumerate(zip(result.motions, by_plan, strict=True), start=1):
        cells = [_margin_cell(rows.get(kind), motion, least[kind]) for kind in kinds]
        body.append(f"<tr><td>{number}</td>{''.join(cells)}</tr>")
    header = "<th>plan</th>" + "".join(f'<th class="text">{escape(kind)}</th>' for kind in kinds)
    text = (
        "What the certificates left of every limit, with place and time in the plan: shares of the limit, angles and "
        "distances, for every parameter in the boxes and every tracking error within its bound. The smallest of each "
        "column is bold; grey ones lie in a part of a plan that was not followed."
    )
    table = f"<table class='small'><thead><tr>{header}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return f"<h3>Smallest margins</h3><p>{text}</p><div class='scroll'>{table}</div>"


def _margin_cell(row: MarginRow | None, motion: MotionRecord, least: float) -> str:
    if row is None:
        return "<td class='text'>–</td>"
    is_behind = motion.followed is not None and row.time is not None and row.time > motion.followed
    classes = "text wide" + (" unit" if is_behind else "") + (" strong" if row.margin == least else "")
    words = re.sub(r" s$", "&nbsp;s", escape(row.place))
    place = f"<br><span class='unit'>{words}</span>" if row.place else ""
    return f"<td class='{classes}'>{escape(row.value)}{place}</td>"


def _claims(result: IdentificationResult) -> str:
    """What the certificates say, each sentence once."""
    plans: dict[str, list[str]] = {}
    for number, motion in enumerate(result.motions, start=1):
        plans.setdefault(motion.claims or "Nothing is known of its certificate.", []).append(str(number))
    items = []
    for claims, numbers in plans.items():
        who = "All plans" if len(plans) == 1 else f"Plan{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
        items.append(f"<li>{who}: {escape(claims)}</li>")
    return f"<h3>What the certificates say</h3><ul>{''.join(items)}</ul>"


_DIGITS = {"kg": 3, "kg m": 4, "kg m^2": 5, "m": 4}
_MEANINGS = (
    "mass",
    *(f"mass × centre of mass, {axis}" for axis in "xyz"),
    *(f"inertia {axes} about the frame’s origin" for axes in ("xx", "xy", "yy", "xz", "yz", "zz")),
)


def report_html(result: IdentificationResult) -> str:
    """The page as one text; it loads nothing from anywhere."""
    parts = [_header(result), _state(result)]
    if result.is_usable:
        parts += [_tiles(result), _parameters(result), _payload(result)]
    parts += [
        _figure("How the bounds came in", _CONVERGENCE, figures.convergence(result) + figures.shrinkage(result)),
        _figure("Does the model explain the torques?", _TORQUE, figures.torque_fit(result), _fit_table(result)),
        _figure("Do the data agree with the assumptions?", _WINDOWS, figures.windows(result), _contradictions(result)),
        _figure("What limits the bounds", _BUDGET, figures.error_budget(result)),
        _figure("Motion", _MOTION, figures.motion(result), motions_html(result)),
        _figure("Excitation", _EXCITATION, figures.excitation(result), known_html(result)),
        _assumptions(result),
        _settings(result),
    ]
    title = escape(f"Payload of {result.robot.name}, {result.created:%Y-%m-%d %H:%M}")
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


_CONVERGENCE = (
    "Every parameter as the data arrive. Narrow is good; the bounds never widen while the payload stays the same."
)
_TORQUE = (
    "Torque of each joint with the identified payload and the nominal arm. The acceleration for this plot is filtered "
    "from the measured velocity; the estimate itself uses none. A residual far outside the band of the sensor, or with "
    "a trend, hints at friction or an arm parameter that is off."
)
_WINDOWS = (
    "The estimator looks at windows of momentum, not at single samples. Each dot is the mean torque of one window that "
    "the payload does not explain; the band is what the claimed errors of the sensors and the uncertainty of the arm "
    "may cause. Dots outside contradict the assumptions."
)
_BUDGET = (
    "Where the width of the bounds comes from. To make them narrower, improve what takes the largest share: a better "
    "torque sensor or calibration, better known arm parameters, or a motion that excites more."
)
_MOTION = "What the arm did while it was identified. Numbered lines are the starts of its plans."
_EXCITATION = (
    "How well the motion makes the parameters visible. Left: how strongly each direction of the ten parameters shows "
    "in the data, each parameter counted in half widths of its prior. A value far below the others is a direction "
    "this motion hardly sees."
)


def _header(result: IdentificationResult) -> str:
    robot, created = escape(result.robot.name), f"{result.created:%Y-%m-%d %H:%M:%S}"
    kicker = f'<p class="kicker">Identification report · {robot} · {created} · {escape(result.source)}</p>'
    if not result.is_usable:
        lead = "Nothing here may be used as a payload."
        return f'<header>{kicker}<h1>No usable estimate</h1><p class="lead">{lead}</p></header>'
    mass = summarize_payload(result).mass
    what = "is certain to weigh" if result.is_rigorous else "is estimated to weigh"
    lead = f"between <b>{mass.lower:.3f}</b> and <b>{mass.upper:.3f} kg</b>"
    return (
        f"<header>{kicker}<h1>The payload weighs {mass.values:.2f} kg</h1>"
        f'<p class="lead">Under the assumptions below it {what} {lead}.</p></header>'
    )


def _state(result: IdentificationResult) -> str:
    estimate = result.estimate
    boxes = []
    if estimate.alarm is not None:
        boxes.append(("bad", "Alarm", estimate.alarm_text))
    elif not result.is_usable:
        boxes.append(("bad", "Not identified", result.reason_unusable))
    elif not result.is_identified:
        boxes.append(("warn", "Identified in part", estimate.shortfall))
    if result.is_usable and result.is_rigorous:
        boxes.append(("good", f"Guaranteed bounds ({estimate.method.replace('_', ' ')})", estimate.guarantee))
    elif result.is_usable:
        reason = " ".join(map(_sentence, result.caveats)) or estimate.guarantee
        boxes.append(("warn", f"Bounds without guarantee ({estimate.method.replace('_', ' ')})", reason))
    warnings = "".join(f"<li>{escape(_sentence(text))}</li>" for text in notices(result))
    html = "".join(
        f'<div class="state {kind}"><p><b>{escape(head)}.</b> {escape(_sentence(text))}</p></div>'
        for kind, head, text in boxes
    )
    return html + (f'<div class="state warn"><p><b>Please note</b></p><ul>{warnings}</ul></div>' if warnings else "")


def _sentence(text: str) -> str:
    text = text.strip()
    is_word = text.split(" ", 1)[0].rstrip(",;:").isalpha()  # not the name of a joint
    return (text[:1].upper() + text[1:] if is_word else text) + (
        "" if text.endswith((".", "!", "?")) or not text else "."
    )


def _tiles(result: IdentificationResult) -> str:
    estimate, tool = result.estimate, summarize_payload(result, result.robot.tool_frame)
    x, y, z = 1e3 * tool.com.values
    shrinkage = result.shrinkage
    tiles = [
        ("Mass", f"{tool.mass.values:.3f} <span class='unit'>kg</span>", f"± {0.5 * tool.mass.width:.3f} kg"),
        (
            "Centre of mass, tool frame",
            f"({x:.1f}, {y:.1f}, {z:.1f}) <span class='unit'>mm</span>",
            "± " + _com_note(tool.com),
        ),
        (
            "Bounds against the prior",
            f"{np.median(shrinkage):.0f} × <span class='unit'>narrower</span>",
            f"median of ten; mass {shrinkage[0]:.0f} ×, worst {shrinkage.min():.1f} ×",
        ),
        (
            "Data",
            f"{estimate.data_seconds:.1f} <span class='unit'>s</span>",
            f"{estimate.number_of_windows} windows, condition number {estimate.condition_number:.3g}",
        ),
    ]
    if result.truth is not None:
        inside = int(np.sum((estimate.lower <= result.truth) & (result.truth <= estimate.upper)))
        tiles.append(
            ("Truth inside (simulation)", f"{inside} <span class='unit'>of 10</span>", "known only in simulation")
        )
    cells = "".join(
        f'<div class="tile"><div class="name">{name}</div><div class="value">{value}</div>'
        f'<div class="note">{note}</div></div>'
        for name, value, note in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _com_note(com: Bounded) -> str:
    half = 0.5e3 * com.width
    return "not bounded" if not np.all(np.isfinite(half)) else f"({half[0]:.1f}, {half[1]:.1f}, {half[2]:.1f}) mm"


def _parameters(result: IdentificationResult) -> str:
    estimate, truth = result.estimate, result.truth
    head = ["parameter", "unit", "estimate", "lower", "upper", "narrower than prior"]
    head += ["truth", "inside"] if truth is not None else []
    rows = []
    for i, (name, unit) in enumerate(zip(PARAMETER_NAMES, PARAMETER_UNITS, strict=True)):
        digits = _DIGITS[unit]
        numbers = [estimate.values[i], estimate.lower[i], estimate.upper[i]]
        cells = [
            f'<td title="{_MEANINGS[i]}"><b>{name}</b></td>',
            f'<td class="text unit">{_unit(unit)}</td>',
            f'<td class="strong">{_number(numbers[0], digits)}</td>',
            *(f"<td>{_number(number, digits)}</td>" for number in numbers[1:]),
            f"<td>{result.shrinkage[i]:.3g} ×</td>",
        ]
        if truth is not None:
            is_inside = estimate.lower[i] <= truth[i] <= estimate.upper[i]
            cells += [
                f"<td>{_number(truth[i], digits)}</td>",
                '<td class="yes">yes</td>' if is_inside else '<td class="no">NO</td>',
            ]
        cells.append(f'<td class="bar">{_range_bar(result, i)}</td>')
        rows.append("<tr>" + "".join(cells) + "</tr>")
    classes = ["", "text", "", "", "", "", "", ""]
    header = "".join(f'<th class="{css}">{text}</th>' for text, css in zip(head, classes, strict=False))
    header += '<th class="text" style="padding-left:16px">within the prior</th>'
    what = "payload" if estimate.target == "payload" else "last body and payload together"
    text = (
        f"Of the {what}, about the origin of the frame of the last joint (<code>{escape(estimate.frame)}</code>). "
        "The bar shows the bounds inside the prior."
    )
    table = f"<table><thead><tr>{header}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<section><h2>The ten inertial parameters</h2><p>{text}</p><div class="scroll">{table}</div></section>'


def _range_bar(result: IdentificationResult, i: int) -> str:
    """Bounds (bar), estimate (tick) and truth (ring) on the interval of the prior."""
    prior, estimate = result.prior, result.estimate
    width = prior.upper[i] - prior.lower[i]
    if not width > 0.0:
        return ""

    def place(value: float) -> float:
        return float(np.clip(220 * (value - prior.lower[i]) / width, 0.0, 220.0))

    first, last, middle = place(estimate.lower[i]), place(estimate.upper[i]), place(estimate.values[i])
    if last - first < 3.0:
        first, last = max(0.0, middle - 1.5), min(220.0, middle + 1.5)
    shapes = [
        '<line x1="0" y1="11" x2="220" y2="11" style="stroke:var(--prior)" stroke-width="1"/>',
        '<path d="M0 7v8M220 7v8" style="stroke:var(--prior)" stroke-width="1"/>',
        f'<rect x="{first:.2f}" y="5" width="{last - first:.2f}" height="12" rx="1.5" style="fill:var(--band)"/>',
        f'<rect x="{middle - 1:.2f}" y="3" width="2" height="16" style="fill:var(--accent)"/>',
    ]
    if result.truth is not None:
        x = place(result.truth[i])
        shapes.append(
            f'<circle cx="{x:.2f}" cy="11" r="3" fill="none" style="stroke:var(--truth)" stroke-width="1.6"/>'
        )
    return f'<svg class="range" viewBox="-4 0 228 22" preserveAspectRatio="none">{"".join(shapes)}</svg>'


def _payload(result: IdentificationResult) -> str:
    robot = result.robot
    blocks = [
        ("Tool frame", summarize_payload(result, robot.tool_frame)),
        ("Frame of the last joint", summarize_payload(result)),
    ]
    columns = "".join(f"<div><h3>{name} <code>{escape(s.frame)}</code></h3>{_summary(s)}</div>" for name, s in blocks)
    text = (
        "Bounds follow from those of the ten parameters by interval arithmetic. They hold entry by entry, so those of "
        "derived quantities are wider than need be. Inertia matrix and principal axes are those of the point estimate, "
        "without bounds."
    )
    return f'<section><h2>The payload as a body</h2><p>{text}</p><div class="columns">{columns}</div></section>'


def _summary(summary: PayloadSummary) -> str:
    rows = [("mass", "kg", summary.mass)]
    rows += [(f"centre of mass {axis}", "m", _entry(summary.com, i)) for i, axis in enumerate("xyz")]
    rows += [(f"principal moment {i + 1}", "kg m^2", _entry(summary.principal_moments, i)) for i in range(3)]
    body = "".join(
        f'<tr><td>{name} <span class="unit">[{_unit(unit)}]</span></td>'
        + f'<td class="strong">{_number(bounded.values, _DIGITS[unit])}</td>'
        + "".join(f"<td>{_number(bound, _DIGITS[unit])}</td>" for bound in (bounded.lower, bounded.upper))
        + "</tr>"
        for name, unit, bounded in rows
    )
    matrix = "".join(
        "<tr>" + "".join(f"<td>{value:.5f}</td>" for value in row) + "</tr>" for row in summary.inertia_com.values
    )
    axes = "; ".join("({:+.2f}, {:+.2f}, {:+.2f})".format(*column) for column in summary.principal_axes.T)
    head = "<tr><th></th><th>estimate</th><th>lower</th><th>upper</th></tr>"
    return (
        f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
        f"<h3>Inertia about the centre of mass <span class='unit'>[kg m²]</span></h3>"
        f"<table><tbody>{matrix}</tbody></table><p class='unit'>Principal axes: {axes}</p>"
    )


def _entry(bounded: Bounded, index: int) -> Bounded:
    return Bounded(bounded.values[index], bounded.lower[index], bounded.upper[index])


def _figure(title: str, text: str, svg: str, table: str = "") -> str:
    if not svg and not table:
        return ""
    return f"<section><h2>{title}</h2><p>{text}</p>{svg}{table}</section>"


def _fit_table(result: IdentificationResult) -> str:
    samples, predicted = result.samples, result.predicted_tau
    if samples is None or predicted is None or len(samples) == 0:
        return ""
    rest = samples.tau - predicted
    sensors = result.robot.sensors
    claimed = sensors.effort_relative_error * np.abs(samples.tau) + sensors.effort_absolute_error
    rows = []
    for j, name in enumerate(result.robot.joint_names):
        spread = float(np.var(samples.tau[:, j]))
        explained = 1.0 - float(np.var(rest[:, j])) / spread if spread > 0.0 else float("nan")
        numbers = [
            f"{np.sqrt(np.mean(rest[:, j] ** 2)):.3f}",
            f"{np.abs(rest[:, j]).max():.3f}",
            f"{rest[:, j].mean():+.3f}",
        ]
        numbers += [f"{explained:.4f}", f"{100 * np.mean(np.abs(rest[:, j]) <= claimed[:, j]):.0f} %"]
        rows.append(f"<tr><td>{escape(name)}</td>" + "".join(f"<td>{number}</td>" for number in numbers) + "</tr>")
    head = ["joint", "RMS [Nm]", "largest [Nm]", "mean [Nm]", "R²", "inside the claimed sensor error"]
    header = "".join(f"<th>{text}</th>" for text in head)
    return f"<h3>Residual by joint</h3><table><thead><tr>{header}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _contradictions(result: IdentificationResult) -> str:
    check = result.windows
    if check is None:
        return ""
    items = "".join(f"<li>{escape(_sentence(text))}</li>" for text in check.contradictions(result.robot.joint_names))
    payload = (
        "" if check.is_estimate else "<p>Without a usable estimate, the payload here is the least-squares fit to all "
    )
    payload += "" if check.is_estimate else "windows: it only shows where the misfit is.</p>"
    return payload + (f"<ul>{items}</ul>" if items else "<p>No window contradicts them.</p>")


def _assumptions(result: IdentificationResult) -> str:
    sentences = [result.estimate.guarantee, *result.robot.assumptions, *result.robot.warnings]
    items = "".join(f"<li>{escape(_sentence(text))}</li>" for text in dict.fromkeys(sentences) if text)
    text = "If one of these is wrong, so may be the bounds."
    return f"<section><h2>What this rests on</h2><p>{text}</p><ul>{items}</ul></section>"


def _settings(result: IdentificationResult) -> str:
    groups = [
        ("Settings", result.settings),
        ("Time [s]", {name: f"{value:.3g}" for name, value in result.timing.items()}),
        ("Versions", result.versions),
    ]
    columns = "".join(
        f"<div><h3>{title}</h3><table><tbody>"
        + "".join(
            f"<tr><td>{escape(str(k))}</td><td class='wide'>{escape(str(v))}</td></tr>" for k, v in entries.items()
        )
        + "</tbody></table></div>"
        for title, entries in groups
        if entries
    )
    return f'<section><h2>How it was made</h2><div class="columns">{columns}</div></section>' if columns else ""


def _unit(unit: str) -> str:
    return unit.replace("^2", "²")


def _number(value: float, digits: int) -> str:
    if not np.isfinite(value):
        return "unbounded"
    return f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", "−")
