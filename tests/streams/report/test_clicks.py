"""The page in a real Chromium: clicked through, typed at, printed; nothing else is loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from streams.replay.what_if.result import Figures, Group, Mark, Side, Timeline, WhatIf
from streams.report.beside import told
from streams.report.model import Report
from streams.report.page import render
from tests.streams.report.browser import Browser, program
from tests.support import unavailable

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
FIRST, SECOND = "node-00003", "node-00004"
VIEW = "Array.from(document.querySelectorAll('#lanes .mark')).filter(m => !m.hidden).length"


def answer(report: Report) -> WhatIf:
    """What a what-if may say: numbers by hand, a hostile name."""
    start_ms, count = report.about.from_ms, 42
    commands, gone = {"suppress": {"lower": 300}}, {"memory_full": 4}
    was = Figures(
        nodes=6, node_ms=2_500_000, commands=commands, evictions=gone, batch_cpu_core_ms=7_200_000,
        batch_memory_gib_ms=1, mid_cpu_core_ms=1, mid_memory_gib_ms=1, withheld_core_ms=0,
        best_effort_core_ms=3_600_000, above_recorded_ms=9_000, above_other_ms=9_000, ill_ms=5_000,
        slo_reports=900, slo_misses=114,
    )  # fmt: skip
    would = msgspec.structs.replace(was, evictions={}, slo_misses=0)
    values: dict[str, list[int | None]] = {
        "best_effort_milli": [5_000] * count,
        "batch_cpu_milli": [8_000] * count,
    }
    whole = Group("whole", "all", was, would, {"slo_misses": -114})
    mark = Mark(FIRST, 0, 700, start_ms + 180_000, "capacity", "1 core", HOSTILE)
    return WhatIf(
        "incident.slack", 6, start_ms, report.about.to_ms, (0, 1), "pool",
        Side("recorded", ("a",), (3,)), Side(HOSTILE, ("b",)), mark, (mark,), (whole,),
        (Timeline("whole", "all", start_ms, 10_000, values, values),), (), ("It ends here.",),
    )  # fmt: skip


def hostile(report: Report) -> Report:
    """The same with strangers' words where names stand."""
    pods = tuple(msgspec.structs.replace(pod, workload=HOSTILE) for pod in report.pods)
    changes = tuple(msgspec.structs.replace(one, author=HOSTILE) for one in report.policies)
    details = dict(report.details)
    first = details[FIRST]
    details[FIRST] = msgspec.structs.replace(
        first,
        p99_ms=first.p99_ms | {HOSTILE: first.p99_ms["shop/web"]},
        errors_permille=first.errors_permille | {HOSTILE: first.errors_permille["shop/web"]},
    )
    figures, more = told(answer(report))
    return msgspec.structs.replace(
        report, pods=pods, policies=changes, details=details, what_if=figures,
        about=msgspec.structs.replace(report.about, source=HOSTILE),
        findings=(*more, *report.findings),
    )  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    found = program()
    if found is None:
        unavailable("Chromium: run .ci/setup browser")
    async with Browser(found) as started:
        yield started


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "incident.html"
    path.write_text(render(report), encoding="utf-8")
    return path


@pytest_asyncio.fixture(loop_scope="module")
async def shown(browser: Browser, page: Path) -> AsyncIterator[Browser]:
    """The page, freshly opened; at the end nothing was loaded and nothing went wrong."""
    await browser.open(page)
    yield browser
    assert browser.errors == []
    assert [url for url in browser.loads if not url.startswith(("file:", "data:"))] == []


async def test_findings_stand_first_and_lead_to_what_they_are_about(shown: Browser) -> None:
    said = await shown.text("#findings ol")
    assert "shop/web left its objective" in said
    assert "suppress.threshold_percent 65 -> 98" in said
    before = await shown.js(VIEW)
    await shown.click("#findings li:first-child button")
    assert await shown.js("document.querySelector('#which').value") == FIRST
    assert 0 < await shown.js(VIEW) < before


async def test_every_curve_is_drawn(shown: Browser) -> None:
    assert await shown.js("document.querySelectorAll('.plot canvas').length") == 7
    canvases = "Array.from(document.querySelectorAll('.plot canvas'))"
    pixels = "one.getContext('2d').getImageData(0, 0, one.width, one.height).data"
    painted = f"{canvases}.map(one => {pixels}.some(value => value))"
    assert await shown.js(painted) == [True] * 7


async def test_a_mark_opens_its_explanation_and_escape_closes_it(shown: Browser) -> None:
    await shown.click(".mark.lane-policy:nth-child(2)")
    said = await shown.text("#explain")
    assert "ann published version 4" in said
    assert "65 → 98" in said
    await shown.key("n")
    after = await shown.text("#explain")
    assert after != said
    assert "cause" in after
    await shown.key("Escape")
    assert await shown.js("document.querySelector('#explain').hidden")
    assert await shown.js("document.activeElement.classList.contains('mark')")


async def test_evictions_are_explained_on_their_node(shown: Browser) -> None:
    await shown.key("]")
    assert await shown.js("document.querySelector('#which').value") == SECOND
    await shown.click(".mark.lane-evict_memory")
    said = await shown.text("#explain .said")
    assert "was told to leave node-00004, because" in said
    assert "batch/job-" in said


async def test_the_keyboard_alone_reaches_a_mark_and_opens_it(shown: Browser) -> None:
    for _ in range(60):
        await shown.key("Tab")
        if await shown.js("document.activeElement.classList.contains('mark')"):
            break
    first = await shown.js("document.activeElement.getAttribute('aria-label')")
    await shown.key("ArrowRight")
    second = await shown.js("document.activeElement.getAttribute('aria-label')")
    assert first
    assert second != first
    await shown.key("Enter")
    assert not await shown.js("document.querySelector('#explain').hidden")


async def test_drag_keys_and_double_click_zoom_all_plots_together(shown: Browser) -> None:
    whole = await shown.js(VIEW)
    await shown.drag("#node .u-over", 0.4, 0.6)
    dragged = await shown.js(VIEW)
    assert 0 < dragged < whole
    await shown.key("+")
    assert await shown.js(VIEW) < dragged
    await shown.key("0")
    assert await shown.js(VIEW) == whole
    await shown.key("+")
    await shown.key("ArrowRight")
    await shown.key("-")
    await shown.key("Escape")
    assert await shown.js(VIEW) == whole


async def test_the_mouse_over_a_plot_shows_values_in_all_of_them(shown: Browser) -> None:
    await shown.hover("#node .u-over", 0.5)
    values = await shown.js(
        "Array.from(document.querySelectorAll('#node .u-legend')).map(l => l.innerText)"
    )
    assert len(values) == 5
    assert all("22:1" in each for each in values)


async def test_pods_are_sorted_by_a_click_and_filtered_by_a_word(shown: Browser) -> None:
    column = (
        "Array.from(document.querySelectorAll('#pods tbody tr')).map(r => r.cells[6].innerText)"
    )
    await shown.click("#pods th:nth-child(7) button")
    falling = [float(value) for value in await shown.js(column)]
    assert falling == sorted(falling, reverse=True)
    await shown.click("#pods th:nth-child(7) button")
    rising = [float(value) for value in await shown.js(column)]
    assert rising == sorted(rising)
    assert await shown.js("document.querySelector('#pods th:nth-child(7)').ariaSort") == "ascending"
    await shown.key("/")
    await shown.type("shop/web")
    assert await shown.js("document.querySelectorAll('#pods tbody tr').length") == 6


async def test_light_and_dark(shown: Browser) -> None:
    async def ground() -> Any:
        return await shown.js("getComputedStyle(document.body).backgroundColor")

    theme = await shown.js("document.documentElement.dataset.theme")
    before = await ground()
    await shown.click("#theme")
    assert await shown.js("document.documentElement.dataset.theme") != theme
    assert await ground() != before
    await shown.key("t")
    assert await ground() == before


async def test_help_names_the_keys(shown: Browser) -> None:
    await shown.key("?")
    assert "closer, farther" in await shown.text("#help")
    await shown.click("#help button")
    assert not await shown.js("document.querySelector('#help').open")


async def test_a_narrow_window_shows_all_of_it(shown: Browser) -> None:
    await shown.size(420, 800)
    await shown.settle()
    assert await shown.js("document.documentElement.scrollWidth") <= 420


async def test_it_prints(shown: Browser) -> None:
    printed = await shown.pdf()
    assert printed.startswith(b"%PDF")
    assert 2 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") <= 30
    assert await shown.js("document.querySelectorAll('.plot canvas').length") == 7


async def test_names_of_strangers_are_text_and_never_run(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(render(hostile(report)), encoding="utf-8")
    await browser.open(path)
    await browser.click(".mark.lane-policy")
    assert HOSTILE in await browser.text("#explain")
    assert HOSTILE in await browser.text("#what-if")
    assert "-114" in await browser.text("#what-if table")
    assert HOSTILE in await browser.text("#pods table")
    assert HOSTILE in await browser.text("#node .plots")
    assert await browser.text("h1") == f"Incident: {HOSTILE}"
    assert await browser.js("document.querySelectorAll('main img, main script').length") == 0
    assert browser.errors == []
    assert {url.split(":")[0] for url in browser.loads} <= {"file", "data"}


async def test_the_policy_of_the_page_refuses_other_scripts(shown: Browser) -> None:
    await shown.js(
        "document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: 'window.ran = true'}))"
    )
    assert await shown.js("window.ran") is None
    refused = [error for error in shown.errors if "Content Security Policy" in error]
    assert refused
    shown.errors.clear()
