"""The browser, and a watch over all that must not happen in it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    Response,
    ViewportSize,
    expect,
    sync_playwright,
)

EXECUTABLE = shutil.which("chromium")
MISSING = "no chromium here: `make browser` installs it where apt-get may"
DESKTOP = ViewportSize(width=1200, height=800)
PHONE = ViewportSize(width=360, height=740)
#: Milliseconds that anything on a page may take on a busy machine.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)  # otherwise it is 5 s, whatever a context says


@contextmanager
def chromium() -> Iterator[Browser]:
    # A container has no user namespaces for the sandbox; everything that is opened is our own.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--font-render-hinting=none"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=Path(EXECUTABLE) if EXECUTABLE else None, args=arguments
        )
        yield browser
        browser.close()


class Watch:
    """Collects errors of scripts, violations of the CSP, requests that fail or go elsewhere."""

    def __init__(self, page: Page, host: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self.expected: set[int] = set()  # statuses that a test asks for
        self._host = host
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._request)
        page.on("requestfailed", self._failed)
        page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        # What the browser says of a status is said by `_response`, too.
        ours = not message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and ours:
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self._host:
            self.problems.append(f"request to another host: {request.url}")

    def _failed(self, request: Request) -> None:
        # A stream that is closed, or a page that is left, aborts what is under way.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.problems.append(f"failed: {request.url} {request.failure}")

    def _response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected:
            self.problems.append(f"{response.status}: {response.url}")
