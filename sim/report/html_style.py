"""The style sheet of the HTML report."""

STYLE = """
:root{--ink:#1b1f24;--soft:#57606a;--paper:#fff;--card:#f6f8fa;--line:#d0d7de;--accent:#0b62c4;--good:#1a7f37;--bad:#b42318}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b3;--paper:#0d1117;--card:#161b22;--line:#30363d;
--accent:#6cb0ff;--good:#4ac26b;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
overflow-wrap:break-word}
header,main,footer{max-width:1080px;margin:0 auto;padding:0 clamp(14px,4vw,40px)}
header{padding-top:28px}
h1{font-size:clamp(1.4rem,4.5vw,2.1rem);line-height:1.2;margin:0 0 .4em}
h2:first-letter{text-transform:uppercase}
h2{font-size:1.25rem;margin:2.2em 0 .6em;padding-bottom:.25em;border-bottom:1px solid var(--line)}
.lead{font-size:1.05rem;color:var(--soft);margin:0 0 1em;white-space:pre-line}
nav{display:flex;flex-wrap:wrap;gap:.3em 1em;font-size:.9rem}
a{color:var(--accent)}
p{max-width:75ch}
.note{padding:.7em 1em;border-left:4px solid var(--accent);background:var(--card);border-radius:0 6px 6px 0;
white-space:pre-line}
.note.good{border-color:var(--good)}.note.bad{border-color:var(--bad)}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:10px;margin:1em 0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.6em .9em}
.facts dt{font-size:.82rem;color:var(--soft)}.facts dd{margin:0;font-size:1.2rem;font-weight:600}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;font-size:.9rem;min-width:50%}
caption{text-align:left;color:var(--soft);padding:.3em 0}
th,td{padding:.36em .8em .36em 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td:last-child{min-width:12ch}
th{color:var(--soft);font-weight:600}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.marked td{font-weight:650;background:var(--card)}
figure{margin:1.2em 0}
figure svg{display:block;min-width:560px;width:100%;max-width:960px;height:auto;color:var(--ink)}
figure img{display:block;min-width:560px;width:100%;max-width:960px;height:auto;border-radius:6px}
figcaption{color:var(--soft);font-size:.9rem;max-width:75ch}
details{margin:.8em 0;border:1px solid var(--line);border-radius:8px;padding:.5em .9em}
summary{cursor:pointer;font-weight:600}
footer{color:var(--soft);font-size:.85rem;margin-top:3em;padding-top:1em;padding-bottom:2em;border-top:1px solid var(--line)}
@media print{nav{display:none}details{border:0}}
"""
