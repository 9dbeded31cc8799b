"""One self-contained HTML page: no script, no network, light and dark, readable on a phone and a wide screen.

A page is sections of blocks; every text is escaped here and nowhere else. Figures arrive as SVG made by
:func:`svg_of`, whose ink follows the page's text colour.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

from sim.report.html_style import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

#: drawn with this colour, shown with the page's text colour
INK = "#010203"
#: the page may load nothing and run nothing, whatever a name in it says
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """One boxed statement: good, bad, or plain information."""

    text: str
    tone: Literal["good", "bad", "info"] = "info"


@dataclass(frozen=True, slots=True)
class Facts:
    """Large numbers with their names."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; columns whose cells all look like numbers are right-aligned. `marked`: indices of emphasised rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Picture:
    """An inline SVG and what it shows. The text alternative is the caption."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Image:
    """A PNG, embedded, and what it shows. The text alternative is the caption."""

    png: bytes
    caption: str


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks that are folded away until asked for."""

    summary: str
    blocks: Sequence[Block]


Block = Paragraph | Note | Facts | Table | Picture | Image | Details


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its blocks; `anchor` is the fragment that links to it."""

    heading: str
    blocks: Sequence[Block]
    anchor: str = ""


def page(title: str, lead: str, sections: Sequence[Section], footer: str) -> str:
    """The whole document as text. `lead` is the question that the page answers."""
    shown = [section for section in sections if section.blocks]
    links = "".join(f'<a href="#{_anchor(section)}">{escape(section.heading)}</a>' for section in shown)
    body = "".join(
        f'<section id="{_anchor(section)}"><h2>{escape(section.heading)}</h2>{"".join(map(_block, section.blocks))}</section>'
        for section in shown
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head>'
        f'<body><header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p><nav>{links}</nav></header>'
        f"<main>{body}</main><footer>{escape(footer)}</footer></body></html>\n"
    )


def fragment(title: str, blocks: Sequence[Block]) -> str:
    """A few blocks for a notebook, in the notebook's own style."""
    return f"<div><h3>{escape(title)}</h3>{''.join(map(_block, blocks))}</div>"


def _anchor(section: Section) -> str:
    return re.sub(r"[^a-z0-9]+", "-", (section.anchor or section.heading).lower()).strip("-")


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            return f"<p>{escape(block.text)}</p>"
        case Note():
            return f'<p class="note {block.tone}">{escape(block.text)}</p>'
        case Facts():
            items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in block.items)
            return f'<dl class="facts">{items}</dl>'
        case Table():
            return _table(block)
        case Picture():
            return (
                f'<figure><div class="scroll" role="img" aria-label="{escape(block.caption)}" tabindex="0">{block.svg}</div>'
                f"<figcaption>{escape(block.caption)}</figcaption></figure>"
            )
        case Image():
            data = b64encode(block.png).decode()
            image = f'<img src="data:image/png;base64,{data}" alt="{escape(block.caption)}">'
            return (
                f'<figure><div class="scroll" tabindex="0">{image}</div>'
                f"<figcaption>{escape(block.caption)}</figcaption></figure>"
            )
        case Details():
            return f"<details><summary>{escape(block.summary)}</summary>{''.join(map(_block, block.blocks))}</details>"


def _table(table: Table) -> str:
    is_number = [all(_is_numeric(row[i]) for row in table.rows) for i in range(len(table.columns))]
    style = [' class="n"' if numeric else "" for numeric in is_number]
    head = "".join(f'<th scope="col"{s}>{escape(name)}</th>' for s, name in zip(style, table.columns, strict=True))
    body = "".join(
        f'<tr class="marked">{cells}</tr>' if index in table.marked else f"<tr>{cells}</tr>"
        for index, cells in enumerate(
            "".join(f"<td{s}>{escape(cell)}</td>" for s, cell in zip(style, row, strict=True)) for row in table.rows
        )
    )
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _is_numeric(cell: str) -> bool:
    return not cell or cell in ("-", "–") or bool(re.match(r"[+\-−]?[\d.,]+", cell))


def svg_of(figure: MatplotlibFigure, name: str) -> str:
    """The figure as inline SVG: transparent, text as text, ids prefixed with `name`, no date; same input, same bytes."""
    import io

    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower())
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(url\(#|xlink:href="#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return re.sub(INK, "currentColor", text, flags=re.IGNORECASE)
