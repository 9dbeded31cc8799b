"""Which measurements are held out: constants that were fitted on them stand aside for what one would assume without them.

`tiersim validate --left-out` predicts every family as if its own measurements had never been seen. The set is one per
process and chosen before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import NamedTuple, Protocol, TypeVar

_names: frozenset[str] = frozenset()


def hold_out(tables: Iterable[str]) -> None:
    """Forget these tables of measurements ("publication/table"), and with them their publications; [] remembers all."""
    global _names
    given = frozenset(tables)
    _names = given | {table.split("/", 1)[0] for table in given}


def held_out() -> frozenset[str]:
    """What is held out now: a key for what is kept of constants that may stand aside."""
    return _names


def is_held_out(fitted_on: Iterable[str]) -> bool:
    """Whether a constant that was fitted on these tables, or whole publications, must stand aside."""
    return bool(_names) and not _names.isdisjoint(fitted_on)


class Fitted(NamedTuple):
    """A constant of a law: its value, what one would assume without the tables that it was fitted on, and these tables."""

    value: float
    prior: float
    fitted_on: tuple[str, ...]

    def get(self) -> float:
        """The value, or what stands in for it while its tables are held out."""
        return self.prior if is_held_out(self.fitted_on) else self.value


class _Profile(Protocol):
    """A dataclass whose fields may be fitted: field -> tables, and field -> what one would assume without them."""

    @property
    def fitted(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def priors(self) -> Mapping[str, float]: ...


ProfileKind = TypeVar("ProfileKind", bound=_Profile)


def as_unseen(profile: ProfileKind) -> ProfileKind:
    """The profile with its priors, or its class's defaults, in place of what was fitted on held-out tables."""
    held = [item for item in fields(profile) if is_held_out(profile.fitted.get(item.name, ()))]  # type: ignore[arg-type]
    stand_ins = {item.name: profile.priors.get(item.name, item.default) for item in held}
    return replace(profile, **stand_ins) if stand_ins else profile  # type: ignore[type-var]
