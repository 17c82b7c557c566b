"""`make screenshots`: every page, light and dark, into docs/screenshots/.

The broker and its clients are real; they talk for a while first, so that the charts show something.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize

from tests.console.browser.chromium import DESKTOP, EXECUTABLE, MISSING, PHONE, chromium
from tests.console.browser.pages import PAGES, Shown
from tests.console.browser.scene import Scene

FOLDER = Path(__file__).parents[3] / "docs" / "screenshots"
WARM_UP = 150.0  # seconds
HEIGHTS = {"overview": 1150, "live": 620, "queue": 640}  # where the usual one does not fit
ON_A_PHONE = ("overview", "connections")
MOST_BYTES = 150_000
Theme = Literal["light", "dark"]


def main() -> None:
    if EXECUTABLE is None:
        sys.exit(MISSING)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else WARM_UP
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Scene(Path(folder) / "data") as scene:
        scene.fill()
        scene.hum()
        print(f"clients talk for {seconds:.0f} s ...", flush=True)
        time.sleep(seconds)
        scene.poison()
        scene.report_pipeline()
        with chromium() as browser:
            shoot_all(browser, scene)


def shoot_all(browser: Browser, scene: Scene) -> None:
    themes: tuple[Theme, ...] = ("light", "dark")
    for shown in PAGES:
        size = DESKTOP | {"height": HEIGHTS.get(shown.name, DESKTOP["height"])}
        for theme in themes:
            shoot(browser, scene, shown, theme, size, f"{shown.name}-{theme}.png")
        if shown.name in ON_A_PHONE:
            shoot(browser, scene, shown, "light", PHONE, f"{shown.name}-phone.png")


def shoot(
    browser: Browser, scene: Scene, shown: Shown, theme: Theme, size: ViewportSize, name: str
) -> None:
    context = browser.new_context(
        viewport=size, color_scheme=theme, base_url=scene.url, locale="en-GB"
    )
    page = context.new_page()
    shown.open(page)
    page.wait_for_timeout(1500)  # a few live updates
    page.screenshot(path=FOLDER / name)
    context.close()
    size_bytes = (FOLDER / name).stat().st_size
    print(f"{name} {size_bytes // 1000} kB", flush=True)
    assert size_bytes <= MOST_BYTES, f"{name} is too large for the documentation"


if __name__ == "__main__":
    main()
