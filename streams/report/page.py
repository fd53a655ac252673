"""A report as one HTML file that loads nothing: styles, plots and data are in it.

Everything that came from a recording goes in as JSON inside a data block, where no `<` is left, and
the scripts put it on the page as text only. A policy in the page (Content-Security-Policy) lets the
browser run our two scripts and two styles, known by their SHA-256, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
from importlib.resources import files

import msgspec

from streams.report.model import Report

SCRIPTS = (
    "base.js", "charts.js", "marks.js", "tables.js", "sections.js", "what_if.js", "main.js",
)  # fmt: skip
MADE_BY = '<meta name="generator" content="slackwater report">'
"""In the head of every page; an earlier page is known by it."""
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(report: Report) -> str:
    """The page."""
    plot_script, plot_style = _vendor("uPlot.iife.min.js"), _vendor("uPlot.min.css")
    style = _page("page.css")
    script = "(() => {\n" + "\n".join(_page(name) for name in SCRIPTS) + "\n})();"
    parts = {
        "made_by": MADE_BY,
        "title": html.escape(title(report)),
        "script_hashes": " ".join(_digest(text) for text in (plot_script, script)),
        "style_hashes": " ".join(_digest(text) for text in (plot_style, style)),
        "plot_style": plot_style,
        "style": style,
        "plot_script": plot_script,
        "script": script,
        "data": data(report),
    }
    made = _page("page.html")
    head, *others = made.split("{")
    out = [head]
    for other in others:
        name, _, text = other.partition("}")
        out += [parts[name], text]
    return "".join(out)


def title(report: Report) -> str:
    """What the page is called."""
    return f"Incident: {report.about.source}"


def data(report: Report) -> str:
    """The report as JSON that can stand inside a script element."""
    text = msgspec.json.encode(report).decode()
    for sign, escaped in ESCAPES.items():
        text = text.replace(sign, escaped)
    return text


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _page(name: str) -> str:
    return files("streams.report").joinpath("page", name).read_text(encoding="utf-8")


def _vendor(name: str) -> str:
    return files("streams.report").joinpath("vendor", name).read_text(encoding="utf-8")
