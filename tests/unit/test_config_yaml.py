"""Strict YAML: exact messages, both sides of each limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.config import yaml_source, yaml_text
from sim.config.yaml_source import Position, parse_yaml, read_yaml
from sim.errors import InputError


def message(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("64e9", 64e9),
        ("1e-7", 1e-7),
        ("-.5", -0.5),
        ("4.", 4.0),
        ("010", 10),
        ("1_000", 1000),
        ("0x10", 16),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("'8'", "8"),
        ('"true"', "true"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("64 GB/s", "64 GB/s"),
        ("60%", "60%"),
    ],
)
def test_scalars_follow_yaml_1_2(written: str, value: object) -> None:
    got = parse_yaml(f"a: {written}\n", "f.yaml").data["a"]
    assert got == value
    assert type(got) is type(value)


def test_positions_of_keys_and_items() -> None:
    document = parse_yaml("# Does it fit?\n#\n# Really?\na:\n  b: 1\n  c:\n    - 5\n    - {d: 6}\n", "f.yaml")
    assert document.data == {"a": {"b": 1, "c": [5, {"d": 6}]}}
    assert document.position(("a", "b")) == Position(5, 3)
    assert document.position(("a", "c", 0)) == Position(7, 7)
    assert document.position(("a", "c", 1, "d")) == Position(8, 8)
    assert document.position(("a", "c", 1, "d", "missing")) == Position(8, 8)
    assert document.comment == "Does it fit?\n\nReally?"
    assert str(document.fault(("a", "c", 1, "d"), "is wrong", "mend it")) == "f.yaml:8: a.c[1].d: is wrong; mend it"


def test_every_duplicate_is_reported() -> None:
    assert message("a: 1\nb: 2\na: 3\nc: {d: 1, d: 2}\n") == (
        "f.yaml:3: a: duplicate key 'a', first on line 1; keep one of them\n"
        "f.yaml:4: c.d: duplicate key 'd', first on line 4; keep one of them"
    )


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


def test_alias_bomb_is_refused() -> None:
    assert message(bomb(9)) == (
        "f.yaml:6: expands to more than 500,000 nodes; aliases (*name) multiply their anchor: write them out"
    )


def test_a_small_alias_is_allowed() -> None:
    data = parse_yaml("a: &x {k: 1}\nb: *x\n", "f.yaml").data
    assert data["b"] == {"k": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &a [*a]", "f.yaml:1: a[0]: alias '*a' has no anchor before it"),
        ("a: !!python/x y", "f.yaml:1: a: the tag 'tag:yaml.org,2002:python/x' is not supported; remove it"),
        ("- 1", "f.yaml:1: expected 'key: value' lines at the top, got the list [1]"),
        ("", "f.yaml: the file is empty; write at least one 'key: value' line"),
        ("a: 1\n---\nb: 2", "f.yaml:2: holds several documents ('---'); put one document in each file"),
        ("a: .nan", "f.yaml:1: a: '.nan' is not a finite number"),
        ("a: -.inf", "f.yaml:1: a: '-.inf' is not a finite number"),
        ("? [1]\n: 2", "f.yaml:1: a key must be a plain word"),
        ("x: 1\n<<: {a: 1}", "f.yaml:2: <<: merge keys ('<<') are not supported; write the keys out"),
    ],
)  # fmt: skip
def test_refused_forms(text: str, expected: str) -> None:
    assert message(text) == expected


def test_syntax_error_names_the_line() -> None:
    assert message("a: 1\nb: c: d\n").startswith("f.yaml:2: not valid YAML: mapping values are not allowed")
    assert message("a:\n\t- b\n").endswith("indent with spaces, not tabs, and quote values that begin with % @ or `")


def test_depth_both_sides() -> None:
    at_limit = "a: " + "[" * (yaml_source.MAX_DEPTH - 1) + "1" + "]" * (yaml_source.MAX_DEPTH - 1)
    assert parse_yaml(at_limit, "f.yaml")
    assert message(at_limit.replace("1", "[1]")) == "f.yaml:1: is nested deeper than 64 levels"
    assert "f.yaml" in message("[" * 100_000)


def test_size_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("a: 1  # " + "x" * 100)
    monkeypatch.setattr(yaml_text, "MAX_BYTES", file.stat().st_size)
    assert read_yaml(file).data == {"a": 1}
    monkeypatch.setattr(yaml_text, "MAX_BYTES", file.stat().st_size - 1)
    with pytest.raises(InputError, match="is too large for a configuration file: 108 bytes, at most 107; traces are JSON"):
        read_yaml(file)


def test_one_gigabyte_is_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "big.yaml"
    with file.open("wb") as stream:
        stream.truncate(2**30)  # sparse
    monkeypatch.setattr(Path, "open", lambda *_args, **_kwargs: pytest.fail("the file was opened"))
    with pytest.raises(InputError) as caught:
        read_yaml(file)
    assert str(caught.value) == (
        f"{file}: is too large for a configuration file: 1,073,741,824 bytes, at most 4,194,304; "
        "traces are JSON Lines: workload: {trace: FILE}"
    )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a: 1\nb: \xff\n", ":2: is not UTF-8: byte 0xff at offset 8; save the file as UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0", ": is a binary file, expected YAML text"),
        (b"a: 1\nb: \x07\n", ":2: is a binary file, expected YAML text (control character 0x07)"),
        (b"\xff\xfea\0:\0", ": is UTF-16, expected UTF-8; save the file as UTF-8"),
    ],
)
def test_files_that_are_not_text(tmp_path: Path, raw: bytes, expected: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(raw)
    with pytest.raises(InputError) as caught:
        read_yaml(file)
    assert str(caught.value) == f"{file}{expected}"


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(file).data == {"a": 1}


def test_missing_folder_and_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scenario.yaml").write_text("a: 1")
    with pytest.raises(InputError) as caught:
        read_yaml(tmp_path / "scenrio.yaml")
    assert str(caught.value) == f"{tmp_path / 'scenrio.yaml'}: no such file; did you mean '{tmp_path / 'scenario.yaml'}'?"
    with pytest.raises(InputError, match="is a folder, expected a YAML file"):
        read_yaml(tmp_path)
    with pytest.raises(InputError, match="is not a regular file"):
        read_yaml(os.devnull)

    def denied(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(InputError, match=r"scenario\.yaml: cannot be read: permission denied"):
        read_yaml(tmp_path / "scenario.yaml")
