"""Rows as a pandas frame; pandas is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sim.errors import Fault, InputError


def frame(rows: Iterable[Mapping[str, object]]) -> Any:
    """A pandas DataFrame of the rows. Raises InputError if pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise InputError(Fault(what="a frame needs pandas", remedy="pip install 'tiersim[table]'")) from error
    return pandas.DataFrame(list(rows))
