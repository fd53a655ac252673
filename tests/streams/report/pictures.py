"""The pictures in docs/report: `python -m tests.streams.report.pictures`.

The planted incident in light and dark: the whole page, a mark opened, and as it prints (where
`pdftoppm` is).
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from pathlib import Path

from streams.recording import open_recording
from streams.report.beside import run, told
from streams.report.build import Wish, build
from streams.report.page import render
from tests.streams.report.browser import Browser, program

HERE = Path(__file__).parents[3]
BUNDLE = HERE / "tests" / "fixtures" / "recordings" / "incident.slack"
PICTURES = HERE / "docs" / "report"
EVICTION = ".mark.lane-evict_memory"


async def take(page: Path) -> dict[str, bytes]:
    """Every picture by its name, and the page as PDF."""
    taken: dict[str, bytes] = {}
    found = program()
    assert found is not None, "no Chromium here: .ci/setup browser"
    async with Browser(found) as browser:
        for theme in ("light", "dark"):
            await browser.call(
                "Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": theme}],
            )
            await browser.open(page, 1360, 900)
            taken[f"whole-{theme}.png"] = await browser.picture(whole=True)
            await browser.size(1360, 1060)
            for _ in range(6):
                if await browser.js(f"document.querySelector('{EVICTION}') !== null"):
                    break
                await browser.key("]")
            await browser.click(EVICTION)
            await browser.js("document.querySelector('#node').scrollIntoView()")
            await browser.settle()
            await browser.hover("#node .u-over", 0.55)
            await browser.js("document.querySelector('#node').scrollIntoView()")
            await browser.settle()
            taken[f"mark-{theme}.png"] = await browser.picture()
        await browser.open(page, 1360, 900)
        taken["printed.pdf"] = await browser.pdf()
    return taken


def main() -> None:
    """Write the pictures, with the policy before beside the one that was."""
    with open_recording(BUNDLE) as recording, tempfile.TemporaryDirectory() as folder:
        beside = told(run(BUNDLE, "version:3"))
        page = Path(folder) / "incident.html"
        page.write_text(render(build(recording, Wish(BUNDLE.name), beside)), encoding="utf-8")
        taken = asyncio.run(take(page))
    PICTURES.mkdir(exist_ok=True)
    for name, data in taken.items():
        (PICTURES / name).write_bytes(data)
    printed = PICTURES / "printed.pdf"
    if shutil.which("pdftoppm"):
        pages = ["-png", "-r", "60", "-f", "1", "-l", "2"]
        subprocess.run(["pdftoppm", *pages, str(printed), str(PICTURES / "printed")], check=True)
    printed.unlink()


if __name__ == "__main__":
    main()
