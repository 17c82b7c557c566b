"""axe finds nothing serious on any page, light or dark, wide or narrow."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser.axe import serious_findings
from tests.console.browser.chromium import PHONE
from tests.console.browser.pages import PAGES, Shown
from tests.console.browser.scene import Scene


@pytest.fixture(scope="module", autouse=True)
def _furnished(scene: Scene) -> None:
    """Something on every page."""
    scene.poison()
    scene.report_pipeline(error="Contract orders: total is not a number")


@pytest.mark.parametrize("shown", PAGES, ids=lambda shown: shown.name)
def test_no_page_has_a_serious_finding(page: Page, shown: Shown) -> None:
    shown.open(page)
    assert serious_findings(page) == []
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    # Only colours differ now.
    assert serious_findings(page, "color-contrast") == []


@pytest.mark.parametrize("name", ["overview", "topic", "connections", "queue"])
def test_a_page_on_a_phone_has_no_serious_finding(page: Page, name: str) -> None:
    page.set_viewport_size(PHONE)
    next(shown for shown in PAGES if shown.name == name).open(page)
    assert serious_findings(page) == []


@pytest.mark.smoke
def test_a_dialog_has_no_serious_finding(page: Page) -> None:
    page.goto("/connections")
    page.get_by_role("button", name="Close").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert serious_findings(page) == []


def test_the_theme_is_chosen_and_kept(page: Page) -> None:
    page.goto("/")
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Dark colours").click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Light colours").click()
    expect(root).to_have_attribute("data-theme", "light")


def test_nothing_moves_for_those_who_do_not_want_it(browser: Browser, scene: Scene) -> None:
    context = browser.new_context(base_url=scene.url, reduced_motion="reduce")
    page = context.new_page()
    page.goto("/topics/a?view=live")
    expect(page.locator(".pulse.on")).to_have_css("animation-name", "none")
    context.close()
