"""What reality said, and a prediction beside it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from sim.records.words import Struct


class Measured(Struct, frozen=True, kw_only=True):
    """What reality said about a scenario or one point of it."""

    metric: str
    value: float  # SI
    source: str
    unit: str = ""
    tolerance: float = 0.0
    at: Mapping[str, object] = field(default_factory=dict)


class ValidationRow(Struct, frozen=True, kw_only=True):
    """One published measurement beside its prediction; error = predicted / measured - 1."""

    id: str
    family: str
    predicted: float
    measured: float
    unit: str
    source: str = ""
    publication: str = ""
    sweep: str = ""  # rows of one sweep are compared by their ratios and rank order too

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1.0
