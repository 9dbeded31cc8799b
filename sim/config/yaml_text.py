"""The text of a configuration file: a regular file of a sensible size, in UTF-8, without what only binary files hold."""

from __future__ import annotations

import re
import stat
from difflib import get_close_matches
from pathlib import Path

from sim.errors import Fault, InputError

#: configuration is written by people; larger inputs are traces, which are JSON Lines
MAX_BYTES = 4 * 2**20


def read_text(path: Path, file: str) -> str:
    """The whole text; InputError that says of `file` what it is instead. Its size is checked before it is read."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(Fault(what="is a folder, expected a YAML file", file=file))
        if not stat.S_ISREG(status.st_mode):
            raise InputError(Fault(what="is not a regular file, expected a YAML file", file=file))
        if status.st_size > MAX_BYTES:
            raise InputError(_too_large(file, status.st_size))
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(Fault(what="no such file", file=file, remedy=near_file(path))) from None
    except OSError as error:
        raise InputError(Fault(what=f"cannot be read: {(error.strerror or str(error)).lower()}", file=file)) from None
    if len(raw) > MAX_BYTES:  # it grew between the look and the read
        raise InputError(_too_large(file, len(raw)))
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(Fault(what="is UTF-16, expected UTF-8", file=file, remedy="save the file as UTF-8"))
    if b"\0" in raw:
        raise InputError(Fault(what="is a binary file, expected YAML text", file=file))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}"
        raise InputError(Fault(what=what, file=file, line=line, remedy="save the file as UTF-8")) from None
    if control := re.search(r"[\x01-\x08\x0b\x0c\x0e-\x1f]", text):
        line = text.count("\n", 0, control.start()) + 1
        what = f"is a binary file, expected YAML text (control character 0x{ord(control[0]):02x})"
        raise InputError(Fault(what=what, file=file, line=line))
    return text


def _too_large(file: str, size: int) -> Fault:
    what = f"is too large for a configuration file: {size:,} bytes, at most {MAX_BYTES:,}"
    return Fault(what=what, file=file, remedy="traces are JSON Lines: workload: {trace: FILE}")


def near_file(path: Path) -> str:
    """What to say of a file that is not there: the nearest name beside it, or that its folder is missing; else nothing."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"the folder {str(path.parent)!r} is not there"
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {str(path.parent / near[0])!r}?" if near else ""
