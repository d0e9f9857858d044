"""Pages in Chromium, which must be installed; CHROMIUM says where, if it is elsewhere."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
DESKTOP, PHONE = (1280, 860), (390, 844)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # dev's, not test's

    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    assert found, f"no Chromium: install it, or set CHROMIUM; looked for {', '.join(PROGRAMS)}"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Callable[..., Any]]:
    """Opens a module's ``file`` without a network; at the end there must have been no error."""
    complaints, contexts = list[str](), list[Any]()

    def start(size: tuple[int, int] = DESKTOP, scheme: str = "dark") -> Any:
        viewport = dict(zip(("width", "height"), size, strict=True))
        contexts.append(browser.new_context(viewport=viewport, color_scheme=scheme, offline=True))
        shown = contexts[-1].new_page()
        for event, said in (("console", "text"), ("requestfailed", "url"), ("pageerror", "stack")):
            shown.on(event, lambda it, said=said: complaints.append(getattr(it, said)))
        shown.goto(file.as_uri())
        return shown

    yield start
    for context in contexts:
        context.close()
    assert complaints == []
