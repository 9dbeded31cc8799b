"""Values kept while there is room."""

from __future__ import annotations

from sim.kept import Kept


def test_the_longest_unused_goes_first_when_the_room_is_exceeded() -> None:
    kept: Kept[list[int]] = Kept(5, len)
    made: list[str] = []

    def ask(key: str, size: int) -> None:
        kept.get(key, lambda: made.append(key) or [0] * size)  # type: ignore[func-returns-value]

    ask("a", 2)
    ask("b", 3)  # exactly full
    ask("a", 2)
    assert made == ["a", "b"]
    ask("c", 1)  # one too many: "b" was asked for before "a"
    ask("a", 2)
    assert made == ["a", "b", "c"]
    ask("b", 3)
    assert made == ["a", "b", "c", "b"]


def test_what_is_larger_than_the_room_stays_alone() -> None:
    kept: Kept[list[int]] = Kept(1, len)
    first = kept.get("big", lambda: [0] * 9)
    assert kept.get("big", list) is first
    kept.get("other", lambda: [0] * 9)
    assert kept.get("big", list) is not first
