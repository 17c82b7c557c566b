"""Everything is reached without a mouse, and live updates disturb nobody."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.scene import HUMIDITY, SHOP, STATION, TEMPERATURE, Scene
from tests.e2e.process import APP, eventually


def has_focus(page: Page, text: str) -> None:
    for _ in eventually():
        if page.evaluate("document.activeElement.textContent") == text:
            return


def first_row_has(page: Page, text: str, publish: Callable[[], None]) -> None:
    """A rate is above zero for some seconds only, and the page may be late."""
    for _ in eventually():
        publish()
        page.wait_for_timeout(300)
        if text in page.locator("tbody tr").first.inner_text():
            return


@pytest.mark.smoke
def test_from_the_overview_to_a_message_with_keys_alone(page: Page, scene: Scene) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    page.keyboard.press("Tab")
    has_focus(page, "Skip to the content")
    for _ in range(3):  # the brand, Overview, Topics
        page.keyboard.press("Tab")
    has_focus(page, "Topics")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Search topics")).to_be_focused()
    page.keyboard.type("temp")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    has_focus(page, TEMPERATURE)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.locator(".fold").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("tr.message").nth(1).locator(".fold")).to_have_attribute(
        "aria-expanded", "true"
    )


def test_the_skip_link_leads_to_the_content(page: Page, scene: Scene) -> None:
    page.goto("/topics")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("/topics#main")


def test_arrows_walk_through_rows(page: Page, scene: Scene) -> None:
    page.goto("/topics?sort=topic")
    links = page.locator("tbody th a")
    expect(links.first).to_be_visible()
    links.first.focus()
    page.keyboard.press("ArrowDown")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(links.first).to_be_focused()


def test_sorting_by_a_header(page: Page, scene: Scene) -> None:
    page.goto("/topics?sort=-count")
    header = page.get_by_role("columnheader", name="Topic")
    header.get_by_role("button").press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    names = page.locator("tbody th")
    least = re.compile(r"bmtp/42|\$audit/\w+")
    expect(names.first).to_have_text(least)
    header.get_by_role("button").press("Enter")
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(names.last).to_have_text(least)


def test_escape_closes_a_dialog_and_gives_the_focus_back(page: Page, scene: Scene) -> None:
    page.goto("/connections")
    button = page.get_by_role("button", name="Close").first
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(button).to_be_focused()


def test_live_updates_keep_focus_and_selection(page: Page, scene: Scene) -> None:
    """Rows change places, and the one with the focus is among them."""
    page.goto("/connections?sort=-in_rate")
    ours = page.locator("tbody tr", has_text=SHOP)
    button = ours.get_by_role("button")
    button.focus()
    ours.locator(".name").evaluate("name => getSelection().selectAllChildren(name)")
    first_row_has(page, STATION, lambda: scene.publish(scene.station, TEMPERATURE, bytes(200_000)))
    first_row_has(
        page, SHOP, lambda: scene.publish(scene.shop, "payment/large", *[bytes(60_000)] * 15)
    )
    expect(button).to_be_focused()
    assert page.evaluate("getSelection().toString()") == APP


def test_going_back_leads_to_the_page_before(page: Page, scene: Scene) -> None:
    page.goto("/topics?q=humid")
    page.get_by_role("link", name=HUMIDITY).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HUMIDITY)
    page.go_back()
    expect(page.get_by_label("Search topics")).to_have_value("humid")
    expect(page.locator("tbody tr")).to_have_count(1)
