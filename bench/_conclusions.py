"""The sentence with which a page of measurements begins, computed from its tables."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median


def conclude(name: str, data: dict) -> str:
    """Return the conclusion of a page.

    It is empty where there is no rule, or where a part of the benchmark that the rule needs was not run.
    """
    rule = RULES.get(name)
    try:
        return rule(data) if rule else ""
    except (KeyError, IndexError, ValueError, StopIteration, ZeroDivisionError):
        return ""


def _rows(data: dict, beginning: str) -> list[dict]:
    """Return the rows of all tables whose title begins so, as dictionaries by column."""
    tables = [table for table in data["tables"] if table["title"].startswith(beginning)]
    return [dict(zip(table["columns"], row, strict=True)) for table in tables for row in table["rows"]]


def _shares(rows: list[dict], column: str) -> tuple[int, int]:
    """Return the sums of both numbers of cells such as "3 of 4"."""
    pairs = [[int(number) for number in row[column].split(" of ")] for row in rows]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def _closed_loop(data: dict) -> str:
    tables = [table for table in data["tables"] if "trials with all assumptions" in table["title"]]
    counts = [dict(table["rows"]) for table in tables]
    total = {name: sum(count[name] for count in counts) for name in ("with motion", "violations", "plans followed")}
    broken = _rows(data, "Assumptions broken")
    hurt, unnoticed = (sum(row[name] for row in broken) for name in ("something broken", "of these not noticed"))
    return (
        f"{total['violations']} violations in {total['with motion']:,} trials with motion "
        f"({total['plans followed']:,} plans) while all assumptions hold. With one broken on purpose, "
        f"{hurt} of {sum(row['trials'] for row in broken)} trials broke a limit or bound, {unnoticed} unnoticed."
    )


def _containment(data: dict) -> str:
    rows = _rows(data, "By parameters")
    inside, trials = _shares(rows, "inside: estimator")
    paper, _ = _shares(rows, "inside: sensitivity")
    return (
        f"The truth was inside all ten bounds in {inside} of {trials} trials "
        f"(by the paper's sensitivity bound in {paper})."
    )


def _paper(data: dict) -> str:
    names = ("m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
    rows = [row for row in _rows(data, "How many times") if row["method"] == "set_membership"]
    times = [row[name] for row in rows for name in names]
    shares = [row["both, share of what is assumed [%]"] for row in _rows(data, "Errors up to which")]
    return (
        f"The interval derivative of the paper's Theorem 13 is finite only up to {min(shares):.2g} to "
        f"{max(shares):.2g} % of the assumed errors. With the derivative at the nominal point, which guarantees "
        f"nothing, its bounds are {min(times):.1f} to {max(times):.0f} times as wide as the guaranteed ones."
    )


def _verifier(data: dict) -> str:
    rows = [row for row in _rows(data, "kinova_gen3_2f85: what dense") if row["method"] == "verifier"]
    safe, rejected = (sum(row[name] for row in rows) for name in ("safe", "of these rejected"))
    unsafe = sum(row["accepted but not safe"] for row in rows)
    return (
        f"The verifier rejects {rejected} of {safe} motions that dense simulation finds safe; "
        f"it accepts {unsafe} unsafe ones."
    )


def _statistics(data: dict) -> str:
    (row,) = _rows(data, "All")
    return (
        f"The 95 % interval held the mass in {row['mass held [%]']:.1f} % and each parameter in "
        f"{row['all held [%]']:.1f} % of {row['trials']} trials; it guarantees nothing."
    )


def _payload_change(data: dict) -> str:
    rows = _rows(data, "")
    missed = [row for row in rows if row["not noticed"] and row["what happens"] != "nothing"]
    early = sum(row["before it happens"] for row in rows)
    kinds = ", ".join(dict.fromkeys(row["what happens"] for row in missed))
    return (
        f"Not noticed in some trials: {kinds}. Everything else was noticed in all trials; {early:.0f} false warnings."
    )


def _survived(data: dict) -> str:
    rows = [row for row in _rows(data, "") if row.get("survived")]
    good = sum(row["survived"] == "yes" for row in rows)
    fuzz = _rows(data, "Random and mutated")
    return (
        f"{good} of {len(rows)} faults of network and controller survived; {sum(row['datagrams'] for row in fuzz):,} "
        f"random datagrams raised {sum(row['other exceptions'] for row in fuzz)} unexpected exceptions."
    )


def _tare(data: dict) -> str:
    rows = _rows(data, "Median half widths")
    ratio = median(a["m"] / b["m"] for a, b in zip(rows[1::2], rows[::2], strict=True))
    missed = sum(row["missed"] for row in rows)
    return f"A tare narrows the bounds of the mass to {100 * ratio:.0f} % (median); {missed} trials missed the truth."


def _contact(data: dict) -> str:
    rows = {row["method"]: row for table in data["tables"] for row in _rows({"tables": [table]}, "")}
    ours, other = rows["interval, reference"], rows["observer, thresholds"]
    return (
        f"{ours['false alarms']} false alarms in {ours['windows']:,} windows; a momentum observer with thresholds: "
        f"{other['false alarms']} in {other['windows']:,}."
    )


def _hypotheses(data: dict) -> str:
    rows = _rows(data, "")
    alarms, first = (sum(row[name] for row in rows) for name in ("alarms", "first"))
    trials = sum(row["trials"] for row in rows)
    return f"Of {trials} trials {alarms} raised an alarm; the true cause was ranked first in {first}."


def _elastic(data: dict) -> str:
    rows = [row for row in _rows(data, "kinova_gen3") if row["sensors"] == "motor"]
    rigid = [row for row in rows if row["gains"] == "highest"]
    ruled = [row for row in rows if row["gains"] == "by rule"]
    link = [row for row in _rows(data, "kinova_gen3") if row["sensors"] == "link" and row["gains"] == "by rule"]
    bounded = [row for row in link if row["error / bound [-]"] not in ("-", "no bound")]
    unstable = sum(row["gain margin [-]"] == "unstable" for row in rigid)
    return (
        f"The highest gains oscillate at {unstable} of {len(rigid)} stiffnesses; by the rule errors stay within "
        f"{max(float(row['error / bound [-]']) for row in ruled):.2f} of their bound. With sensors on the link side "
        f"{'no motion has' if not bounded else 'some motions have'} a bound."
    )


def _loop(data: dict) -> str:
    row = next(row for row in _rows(data, "Real time") if row["loop at 1 kHz"].endswith("robust"))
    return (
        f"The 1 kHz loop computes for {row['compute p50 [us]']:.0f} us (median) and was late by half a period in "
        f"{row['periods > 1.5 ms']} of {row['cycles']:,} cycles."
    )


def _planner(data: dict) -> str:
    found, possible = _shares(_rows(data, data["tables"][0]["title"]), "found / possible")
    return f"{found} of {possible} plans were found; {data['tables'][0]['title'].partition(': ')[2]}."


def _calibration(data: dict) -> str:
    rows = {row["assumed"]: row for row in _rows(data, "Arm known to 5 %")}
    before, after = rows["today"], rows["constant gain, + empty run, weight"]
    return (
        f"A calibration with a reference weight narrows the mass from +-{before['m [kg]']:.2f} to "
        f"+-{after['m [kg]']:.2f} kg (arm known to 5 %)."
    )


def _excitation(data: dict) -> str:
    rows = {row["criterion"]: row for row in _rows(data, "")}
    ours, other = (100.0 * rows[name]["widths / prior [-]"] for name in ("bounds", "random"))
    return f"Planned motions narrow the bounds to {ours:.0f} % of the prior, random ones to {other:.0f} %."


def _move(data: dict) -> str:
    rows = {row["known of it"]: row for row in _rows(data, "Random moves")}
    before, after = rows["prior"], rows["tared and identified"]
    column = "duration, by all four [s]"
    return (
        f"With the payload tared and identified the same moves of the shipped arm take {after[column]:.2f} s, with the "
        f"prior {before[column]:.2f} s."
    )


def _postures(data: dict) -> str:
    row = next(row for row in _rows(data, "Random postures") if row["postures"] == "all")
    return f"Identification can begin from {row['begin [%]']:.0f} % of {row['number']} random postures."


def _table_1(data: dict) -> str:
    rows = _rows(data, "Table I")
    chains, trials = (sum(row[name] for row in rows) for name in ("whole chains", "trials"))
    return f"{chains} of {trials} trials found all their plans; {sum(row['violations'] for row in rows)} violations."


def _free_floating(data: dict) -> str:
    rows = [row for row in _rows(data, "Relative errors") if row["intervals"] > 40]
    parts = []
    for motion in dict.fromkeys(row["motion"] for row in rows):
        own = [row for row in rows if row["motion"] == motion]
        found = {
            method: ", ".join(f"{row['median [%]']:.1f}" for row in own if row["method"] == method)
            for method in ("least squares", "total least squares")
        }
        parts.append(f"{found['least squares']} % (total least squares: {found['total least squares']} %) by {motion}")
    rates = ", ".join(str(rate) for rate in dict.fromkeys(row["samples per second"] for row in rows))
    return (
        f"With {rates} samples per second the median relative error of the whole motion is {' and '.join(parts)}; the "
        f"paper, which does not give its rate, has {rows[0]['paper median [%]']:.1f} %."
    )


def _free_floating_bounds(data: dict) -> str:
    row = next(row for row in _rows(data, "Containment") if row["bounds of"] == "all")
    widths = [row["median width / prior"] for row in _rows(data, "Guaranteed bounds of all")]
    return (
        f"At the paper's noise the guaranteed bounds of its robot are {widths[0]:.2g} of the prior in the median"
        f"{', so they are not worth it' * (widths[0] > 0.3)}; at a tenth of it {widths[1]:.2g}. Where nothing acts "
        f"from outside and wheel speeds are exact, they held in {row['truth inside']} of {row['trials']} trials."
    )


def _free_flyer_excitation(data: dict) -> str:
    (row,) = _rows(data, "True robot")
    return (
        f"Motions of 67 intervals reach a condition number of {row['median [-]']:.0f} (median of {row['seeds']} "
        f"seeds); 100 or less in {row['of 100 or less']}."
    )


def _regressors(data: dict) -> str:
    times = [row["times faster"] for row in _rows(data, "Regressors")]
    return f"The regressors are {median(times):.0f} times faster than a Python loop over Pinocchio (median)."


def _first_note(data: dict) -> str:
    note = data["notes"][0].rstrip(".")
    return f"{note[0].upper()}{note[1:]}."


RULES: dict[str, Callable[[dict], str]] = {
    "calibration": _calibration,
    "certified_planner": _first_note,
    "closed_loop": _closed_loop,
    "contact": _contact,
    "containment": _containment,
    "elastic": _elastic,
    "excitation": _excitation,
    "fault_campaign": _first_note,
    "free_floating": _free_floating,
    "free_floating_bounds": _free_floating_bounds,
    "free_flyer_excitation": _free_flyer_excitation,
    "fri": _survived,
    "hypotheses": _hypotheses,
    "kortex": _survived,
    "loop": _loop,
    "move": _move,
    "paper": _paper,
    "payload_change": _payload_change,
    "planner": _planner,
    "postures": _postures,
    "regressors": _regressors,
    "statistics": _statistics,
    "stops": _first_note,
    "table_1": _table_1,
    "tare": _tare,
    "verifier": _verifier,
}
