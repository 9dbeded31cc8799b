"""The committed validation summary: how far predictions of each family are off."""

from __future__ import annotations

import csv
from functools import cache

from sim.config.locate import data_folder
from sim.metrics.uncertainty import FamilyError

#: sets of rows of the summary, the most honest first: families predicted with constants fitted without them
_SETS = ("left_out", "all")


@cache
def validation_errors() -> dict[str, FamilyError]:
    """Family -> error, from `results/reference/validation.csv`; {} when it is not there."""
    path = data_folder() / "results" / "reference" / "validation.csv"
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except OSError:
        return {}
    found: dict[str, FamilyError] = {}
    for name in reversed(_SETS):
        for row in rows:
            if row["set"] == name and row["p90_abs_error"]:
                error = FamilyError(n=int(row["n"]), p90=float(row["p90_abs_error"]), is_left_out=name == "left_out")
                found[row["family"]] = error
    return found
