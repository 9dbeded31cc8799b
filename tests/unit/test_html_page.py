"""The HTML page: escaped, self-contained, valid enough for a strict parser, and readable in a real browser."""

import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser

import pytest

from sim.report.html import INK, Details, Facts, Note, Paragraph, Picture, Section, Table, page, svg_of

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;\u202e"
_VOID = {"meta", "link", "img", "br"}


def _figure_svg(name="fig", title=HOSTILE):
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3))
    axes = figure.add_subplot()
    axes.plot([1, 2, 3], [3, 1, 2])
    axes.set_title(title, color=INK)
    return svg_of(figure, name)


@pytest.fixture(scope="module")
def document():
    svg = _figure_svg()
    blocks = [
        Paragraph(HOSTILE),
        Note(HOSTILE, "bad"),
        Facts([(HOSTILE, HOSTILE)]),
        Table([HOSTILE, "step"], [[HOSTILE, "13.4 s"], ["x" * 200, "-"]], HOSTILE, frozenset({0})),
        Picture(svg, HOSTILE),
        Details(HOSTILE, [Paragraph(HOSTILE)]),
    ]
    return page(HOSTILE, HOSTILE, [Section(HOSTILE, blocks, "first"), Section("Empty", [])], HOSTILE)


class _Balance(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def _parsed(text):
    parser = _Balance()
    parser.feed(text)
    assert parser.open == []
    return parser


def test_hostile_text_stays_text(document):
    parser = _parsed(document)
    assert "script" not in parser.tags
    assert "img" not in parser.tags
    assert not [name for name, _ in parser.attributes if name.startswith("on")]


def test_nothing_is_loaded_from_anywhere(document):
    for name, value in _parsed(document).attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:")), value
    assert "url(" not in document.replace("url(#", "")
    assert "@import" not in document
    assert "default-src 'none'" in document


def test_ids_are_unique_and_every_reference_resolves():
    svgs = [_figure_svg("one"), _figure_svg("two")]
    document = page("t", "q", [Section("s", [Picture(svg, "c") for svg in svgs])], "f")
    ids = re.findall(r'\bid="([^"]+)"', document)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', document)) <= set(ids)


def test_empty_sections_vanish_and_numbers_align_right(document):
    assert "Empty" not in document
    assert '<td class="n">13.4 s</td>' in document
    assert '<tr class="marked">' in document


def test_figures_follow_the_text_colour_and_repeat_byte_for_byte():
    assert "currentColor" in _figure_svg()
    assert INK not in _figure_svg()
    assert _figure_svg() == _figure_svg()


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
]


def in_browser(document, folder, *, width, scheme=1):
    """Open `document` `width` px wide (scheme 0 dark, 1 light): its scroll width, body colours, and the console's errors."""
    wrapper = folder / "wrapper.html"
    wrapper.write_text(
        f'<!doctype html><body><iframe id="f" style="width:{width}px;height:3000px;border:0" srcdoc="{escape(document)}">'
        "</iframe><script>f.onload=()=>{const d=f.contentDocument,s=f.contentWindow.getComputedStyle(d.body);"
        "document.body.dataset.found=[d.documentElement.scrollWidth,s.backgroundColor,s.color,d.scripts.length].join('|')}</script>"
    )
    done = subprocess.run(
        [
            CHROMIUM,
            *_FLAGS,
            f"--user-data-dir={folder}/profile",
            f"--blink-settings=preferredColorScheme={scheme}",
            "--dump-dom",
            wrapper.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = re.search(r'data-found="([^"]+)"', done.stdout)[1].split("|")
    return int(found[0]), found[1], found[2], [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [360, 1440])
def test_a_browser_shows_it_without_sideways_scrolling_or_console_errors(document, tmp_path, width):
    light = in_browser(document, tmp_path, width=width, scheme=1)
    dark = in_browser(document, tmp_path, width=width, scheme=0)
    assert light[0] <= width
    assert light[3] == dark[3] == []
    assert light[1] == dark[1].replace("13, 17, 23", "255, 255, 255")
    assert light[1:3] != dark[1:3]


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_browser_check_sees_a_console_error_and_the_policy_stops_a_script(tmp_path):
    document = page("t", "q", [Section("s", [Paragraph("x")])], "f")
    bad = document.replace("</main>", "<script>document.title='ran'</script><div style='width:900px'>x</div></main>")
    width, _, _, errors = in_browser(bad, tmp_path, width=360)
    assert width > 360
    assert errors
