"""A user's machine from the files of tools: which devices there are, and parts calibrated by what was measured on them.

Numbers that no file tells come from the part catalogue, else they are assumed; every one names its source, and what was
assumed is listed. The document that comes out is a topology file like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.config.machine import machine_from
from sim.config.yaml_source import parse_yaml
from sim.errors import Fault, InputError, of_source
from sim.interchange.machines import Figure, Layout
from sim.study.calibration import as_yaml, write_whole
from sim.study.machine_devices import add_devices
from sim.study.machine_draft import Draft, apu_of
from sim.study.machine_host import add_host


def machine_document(layouts: Sequence[Layout], figures: Sequence[Figure], *, gpu: str = "") -> Draft:
    """Topology of the machine that the files describe; `gpu` names the part of its GPUs where no file does.

    Raises InputError when nothing was given, for a `gpu` that is no GPU of the catalogue, and for files that contradict
    each other (links that the GPU does not have).
    """
    if not layouts and not figures:
        what, remedy = (
            "no file given",
            "name at least one: --hwloc, --numactl, --topo, --mlc, --stream, --nvbandwidth, ...",
        )
        raise InputError(Fault(what=what, remedy=remedy))
    draft = Draft(layouts=layouts, figures=figures, gpu=gpu)
    layout = draft.layout()
    if not apu_of(draft, layout):
        add_host(draft, layout)
    add_devices(draft, layout)
    draft.assumptions += [note for note in layout.notes if note not in draft.assumptions]
    return draft


def document_of(draft: Draft, name: str) -> dict[str, Any]:
    """The draft as the plain data of a topology file."""
    files = [item.source for item in draft.layouts] + [figure.source.split(": ")[0] for figure in draft.figures]
    document: dict[str, Any] = {
        "name": name, "title": f"{name}, imported", "source": ", ".join(dict.fromkeys(Path(file).name for file in files)),
        "assumptions": draft.assumptions, "devices": draft.devices, "links": draft.links, "sources": draft.sources,
        "parts": draft.parts,
    }  # fmt: skip
    return {key: value for key, value in document.items() if value}


def write_machine(draft: Draft, name: str, path: Path, sources: Sequence[Path] = ()) -> None:
    """Write the topology file after reading it back: what cannot be built is never written. `sources`: what it was made of.

    Raises InputError when the machine that the files describe cannot exist (with the fault), or the file cannot be written.
    """
    text = "# Written by `tiersim import machine`.\n" + as_yaml(document_of(draft, name))
    try:
        machine_from(parse_yaml(text, str(path)), name=name)
    except InputError as error:
        raise of_source(error, " with ".join(str(source) for source in sources) or str(path)) from None
    write_whole(path, text)
