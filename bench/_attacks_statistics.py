"""Attacks on the statistical interval: trials in which it is false, wider than the guarantee, or missing.

``python bench/_attacks_statistics.py [--trials N]`` prints a row of JSON for each.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from bench_statistics import KINDS, NOISES, Trial, run_trials

ROBOTS = ["kinova_gen3_2f85", "kuka_lbr_iiwa7"]


def run(trials: int) -> list[dict]:
    """Run about so many trials in all; rows as the page of attacks has them."""
    cases = len(ROBOTS) * len(NOISES) * 3 * len(KINDS)
    # Gains last, so trials of one arm are no independent ones.
    found = list(run_trials(ROBOTS, max(1, round(trials / cases)), 1, seed=5000))
    rows = []
    for known in ("nothing", "tare", "calibration"):
        for kind in KINDS:
            these = [one[-1] for one in found if one[2] == known and one[3] == kind]
            rows.append(_row(f"mass outside its interval: {kind}, known: {known}", these, lambda one: not one.held[0]))
    every = [one[-1] for one in found]
    rows.append(_row("mass outside its interval: all", every, lambda one: not one.held[0]))
    rows.append(_row("an interval wider than the guarantee", every, lambda one: bool(np.nanmax(one.width) > 1.0)))
    held = f"the intervals of all ten parameters hold {100.0 * np.mean([one.held for one in every]):.1f} %"
    absent = _row("an interval that is absent", every, lambda one: bool(np.isnan(one.width).any()))
    rows.append(absent | {"note": f"{absent['note']}; {held}"})
    return rows


def _row(attack: str, trials: list[Trial], fails) -> dict:
    """A row; of a 95 % interval up to one in ten may be outside, and one may be absent, which results then say."""
    found = sum(map(fails, trials))
    if "absent" in attack:
        failed, note = 0, f"{found} trials"
    elif "outside" in attack:
        failed, note = found * (found > 0.1 * len(trials)), f"{found} outside, of a 95 % interval"
    else:
        failed, note = found, ""
    return {"point": "2", "attack": attack, "trials": len(trials), "failed": failed, "note": note}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=648)
    for row in run(parser.parse_args().trials):
        print(json.dumps(row))
