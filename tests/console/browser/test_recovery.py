"""A broker that is new, and one that goes away and comes back: the page says what to do."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser.axe import serious_findings
from tests.console.browser.chromium import DESKTOP
from tests.console.browser.scene import TEMPERATURE, Scene, reading


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A broker of its own, in which nothing was ever published."""
    with Scene(tmp_path_factory.mktemp("recovery") / "data") as running:
        yield running


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/", "headwater pub psmb://localhost/sensors/a 21.5"),
        ("/topics", "headwater pub psmb://localhost/sensors/a 21.5"),
        ("/subscriptions", "headwater sub bpsp://localhost/sensors/+"),
        ("/pipelines", "headwater pipeline init"),
    ],
)
def test_an_empty_page_says_what_to_do_next(page: Page, path: str, hint: str) -> None:
    page.goto(path)
    expect(page.locator(".empty")).to_contain_text(hint)
    assert serious_findings(page) == []


def test_a_command_is_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/topics")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("status")).to_contain_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "headwater pub psmb://localhost/sensors/a 21.5"


@pytest.mark.smoke
def test_a_lost_connection_is_shown_and_found_again(browser: Browser, scene: Scene) -> None:
    context = browser.new_context(viewport=DESKTOP, base_url=scene.url)
    page = context.new_page()  # without a watch: requests do fail here
    page.goto("/")
    watermark = page.locator(".tile", has_text="Log").locator(".tile-detail")
    expect(watermark).to_contain_text("watermark")
    before = watermark.inner_text()
    scene.broker.keep_ports()
    assert scene.broker.stop() == 0
    banner = page.get_by_role("alert")
    expect(banner).to_contain_text("reconnecting…")
    scene.broker.start()
    scene.publish(scene.station, TEMPERATURE, reading(1))
    expect(banner).to_be_hidden()
    expect(watermark).not_to_have_text(before)
    context.close()


def test_an_error_of_the_api_is_a_banner(browser: Browser, scene: Scene) -> None:
    context = browser.new_context(viewport=DESKTOP, base_url=scene.url)
    page = context.new_page()
    page.goto("/queues/no%2Fsuch%2Fqueue")
    banner = page.get_by_role("alert")
    expect(banner).to_contain_text("no/such/queue")
    page.get_by_role("link", name="Queues").first.click()
    expect(banner).to_be_hidden()
    context.close()
