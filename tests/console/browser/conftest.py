from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.console.browser.chromium import DESKTOP, EXECUTABLE, MISSING, PATIENCE, Watch, chromium
from tests.console.browser.scene import Scene

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before the markers are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.skipif(EXECUTABLE is None, reason=MISSING))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="package")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(tmp_path_factory.mktemp("scene") / "data") as running:
        running.fill()
        yield running
    assert "Traceback" not in running.broker.log


@pytest.fixture(scope="module")
def context(browser: Browser, scene: Scene) -> Iterator[BrowserContext]:
    """Shared, because files that are known already need not be loaded again."""
    made = browser.new_context(viewport=DESKTOP, locale="en-GB", base_url=scene.url)
    made.set_default_timeout(PATIENCE)
    yield made
    made.close()


@pytest.fixture
def watch(context: BrowserContext, scene: Scene) -> Iterator[Watch]:
    """A fresh page on which nothing may go wrong."""
    watching = Watch(context.new_page(), scene.host)
    yield watching
    watching.page.close()
    assert watching.problems == []


@pytest.fixture
def page(watch: Watch) -> Page:
    return watch.page
