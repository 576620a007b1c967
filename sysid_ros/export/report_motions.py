"""The plans of a run in the report: what was followed of each, and what its certificate says."""

from __future__ import annotations

import re
from html import escape

from sysid_ros.core.planning.margin_rows import MarginRow
from sysid_ros.export.result import IdentificationResult, MotionRecord


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
