"""Bytes of a foreign file, with the bounds that keep a hostile one harmless.

Compression is recognised by content, never by name: traces circulate as `.json.gz`, as plain JSON named `.gz`, and as
`.tar.gz` with one file per rank.
"""

from __future__ import annotations

import codecs
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from sim.errors import Fault, InputError
from sim.units import format_bytes

#: largest plain content that an importer accepts; a 100 MB trace needs about 5x its size while it is read
MAX_BYTES = 2**31
#: the same of a configuration or script, which people write
MAX_WRITTEN_BYTES = 2**20
#: highest ratio of plain to packed bytes; the densest real trace seen has 31, deflate's own limit is 1032
MAX_RATIO = 250.0
#: below this size a high ratio harms nobody (repetitive small files reach any ratio)
RATIO_FREE_BYTES = 2**26
_CHUNK = 2**20
#: byte-order marks, the longest first; Windows shells write UTF-16
_MARKS = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8-sig"),
          (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
#: beginning of a file that is no text, JSON or gzip: what it is, and what to do about it
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "is a ZIP archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "is packed with zstd", "unpack it first"),
    (b"\xfd7zXZ", "is packed with xz", "unpack it first"),
    (b"BZh", "is packed with bzip2", "unpack it first"),
    (b"SQLite format 3", "is an SQLite database", "export text or JSON from the tool that wrote it"),
    (b"\x89PNG", "is a PNG image", "give the text of the output"),
    (b"\xff\xd8\xff", "is a JPEG image", "give the text of the output"),
    (b"%PDF", "is a PDF document", "give the text of the output"),
    (b"\x7fELF", "is a program", "give what it printed"),
    (b"\x80\x04\x95", "is a Python pickle", "pickles are not read: they run code"),
)


def read_bytes(path: str | Path, *, max_bytes: int = MAX_BYTES, max_ratio: float = MAX_RATIO) -> bytes:
    """Content of `path`, unpacked if it is gzip (however it is named).

    Text in UTF-16 or UTF-32 with a byte-order mark comes back as UTF-8. Raises InputError when the file is missing, empty,
    an archive or image, cut inside its gzip stream, larger than `max_bytes` when plain,
    or unpacks to more than `max_ratio` times its size (a gzip bomb; refused before it is held in memory).
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise InputError(Fault(what="is a folder", remedy="name one file", file=str(path)))
        if size > max_bytes:
            raise _too_large(path, size, max_bytes)
        packed = path.read_bytes()
    except OSError as error:
        raise InputError(Fault(what=f"cannot be read: {error.strerror}", file=str(path))) from error
    if not packed:
        raise InputError(Fault(what="is empty", file=str(path)))
    plain = _as_utf8(unpack(packed, path, max_bytes=max_bytes, max_ratio=max_ratio), path)
    if not plain[:_CHUNK].strip() and not plain.strip():
        what = "is empty after unpacking" if packed[:2] == b"\x1f\x8b" else "is empty"
        raise InputError(Fault(what=what, file=str(path)))
    if not plain[:_CHUNK].strip(b"\0") and not plain.strip(b"\0"):
        raise InputError(Fault(what="holds nothing but zero bytes", remedy="copy the file again", file=str(path)))
    return plain


def _as_utf8(content: bytes, path: str | Path) -> bytes:
    """Text with a byte-order mark as UTF-8 without one. Raises InputError for files of other kinds that are known."""
    for magic, what, remedy in _OTHERS:
        if content.startswith(magic):
            raise InputError(Fault(what=what, remedy=remedy, file=str(path)))
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "")
    if not encoding:
        return content
    try:
        return content.decode(encoding).encode()
    except UnicodeError as error:
        what = f"begins as {encoding.removesuffix('-sig').upper()} text and is not: {error}"
        raise InputError(Fault(what=what, remedy="save it as UTF-8", file=str(path))) from error


def unpack(packed: bytes, path: str | Path, *, max_bytes: int = MAX_BYTES, max_ratio: float = MAX_RATIO) -> bytes:
    """`packed` itself, or its gzip content (several members in a row are one content)."""
    if packed[:2] != b"\x1f\x8b":
        return packed
    pieces: list[bytes] = []
    total, rest = 0, packed
    limit = min(max_bytes, max(RATIO_FREE_BYTES, int(max_ratio * len(packed))))
    while rest[:2] == b"\x1f\x8b":
        stream = zlib.decompressobj(wbits=31)
        while not stream.eof:
            try:
                piece = stream.decompress(rest, _CHUNK)
            except zlib.error as error:
                raise InputError(Fault(what=f"damaged gzip stream: {error}", file=str(path))) from error
            total += len(piece)
            if total > limit:
                raise _too_large(path, total, limit, packed=len(packed))
            pieces.append(piece)
            rest = stream.unconsumed_tail
            if not rest and not piece and not stream.eof:
                what = f"gzip stream is cut after {format_bytes(total)} of content"
                raise InputError(Fault(what=what, remedy="copy the file again", file=str(path)))
        rest = stream.unused_data.lstrip(b"\0")
    return b"".join(pieces)


def members(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Iterator[tuple[str, bytes]]:
    """(name, content) of each regular file in a tar archive, or the file itself when it is none.

    Members that are gzip are unpacked too; links, devices and folders are skipped. Raises InputError like `read_bytes`.
    """
    content = read_bytes(path, max_bytes=max_bytes)
    if not is_tar(content):
        yield str(path), content
        return
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                held = archive.extractfile(member) if member.isreg() else None
                if held is not None:
                    inner = _as_utf8(unpack(held.read(), f"{path}:{member.name}", max_bytes=max_bytes), f"{path}:{member.name}")
                    if inner:
                        yield f"{path}:{member.name}", inner
    except tarfile.TarError as error:
        raise InputError(Fault(what=f"damaged tar archive: {error}", file=str(path))) from error


def is_tar(content: bytes) -> bool:
    """Whether the content is a POSIX tar archive (magic "ustar" at byte 257)."""
    return content[257:262] == b"ustar"


def text(path: str | Path, *, max_bytes: int = 2**26) -> str:
    """Content as text; bytes that are not UTF-8 become U+FFFD. For measurement logs and XML, not for traces."""
    return read_bytes(path, max_bytes=max_bytes).decode("utf-8", errors="replace")


def written(path: str | Path) -> str:
    """Text of a configuration or script. Raises InputError like `read_bytes`, and for what is not UTF-8."""
    try:
        return read_bytes(path, max_bytes=MAX_WRITTEN_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"is not UTF-8: {error.reason} at offset {error.start}"
        raise InputError(Fault(what=what, file=str(path))) from None


def _too_large(path: str | Path, size: int, limit: int, packed: int = 0) -> InputError:
    what = f"is too large: more than {format_bytes(limit)} of content"
    if packed:
        what += f" from {format_bytes(packed)} packed (a gzip bomb?)"
    else:
        what = f"is too large: {format_bytes(size)}, at most {format_bytes(limit)} are read"
    return InputError(Fault(what=what, remedy="record fewer steps, or split the file", file=str(path)))
