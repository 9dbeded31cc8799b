"""Reading foreign bytes: packed or not, hostile or not."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.interchange import source


def test_gzip_is_found_by_content_not_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(gzip.compress(b"[1]"))
    (tmp_path / "b.gz").write_bytes(b"[1]")
    (tmp_path / "two.gz").write_bytes(gzip.compress(b"[1,") + gzip.compress(b"2]"))
    assert source.read_bytes(tmp_path / "a.json") == source.read_bytes(tmp_path / "b.gz") == b"[1]"
    assert source.read_bytes(tmp_path / "two.gz") == b"[1,2]"


def test_a_gzip_bomb_is_refused_and_a_dense_trace_is_not(tmp_path: Path) -> None:
    bomb = gzip.compress(b"0" * 2**27)  # ratio about 1000
    (tmp_path / "bomb.gz").write_bytes(bomb)
    with pytest.raises(InputError, match="gzip bomb"):
        source.read_bytes(tmp_path / "bomb.gz")
    assert len(source.read_bytes(tmp_path / "bomb.gz", max_ratio=1100)) == 2**27


@pytest.mark.parametrize("packed", [True, False])
def test_the_size_limit_holds_on_both_sides(tmp_path: Path, packed: bool) -> None:
    content = bytes(range(256)) * 4
    (tmp_path / "a").write_bytes(gzip.compress(content) if packed else content)
    assert source.read_bytes(tmp_path / "a", max_bytes=1024) == content
    with pytest.raises(InputError, match="too large"):
        source.read_bytes(tmp_path / "a", max_bytes=1023)


def test_missing_empty_cut_and_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(bytes(range(256)) * 50)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "hollow").write_bytes(gzip.compress(b""))
    (tmp_path / "cut").write_bytes(whole[:-12])
    (tmp_path / "damaged").write_bytes(whole[:40] + b"\xff" * 20 + whole[60:])
    for name, message in {
        "missing": "No such file", "empty": "is empty", "hollow": "is empty", "cut": "cut after", "damaged": "damaged",
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=message):
            source.read_bytes(tmp_path / name)
    with pytest.raises(InputError, match="folder"):
        source.read_bytes(tmp_path)


def test_members_of_a_tar_with_a_gzip_inside(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name, content in (("x/rank0.json", b"{}"), ("x/rank1.json", gzip.compress(b"[]")), ("x/none", b"")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("x/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    found = dict(source.members(tmp_path / "a.tar.gz"))
    assert [name.split(":")[1] for name in found] == ["x/rank0.json", "x/rank1.json"]
    assert list(found.values()) == [b"{}", b"[]"]
    (tmp_path / "plain").write_bytes(b"{}")
    assert [content for _, content in source.members(tmp_path / "plain")] == [b"{}"]
