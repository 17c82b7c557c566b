"""On a phone, tables are cards and the page never scrolls sideways."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser.chromium import PATIENCE, PHONE
from tests.console.browser.pages import PAGES
from tests.console.browser.scene import Scene

LONG = "z-level-of-a-topic-that-goes-on-and-on-and-on/" * 4 + "end"


@pytest.fixture
def phone(browser: Browser, scene: Scene) -> Page:
    context = browser.new_context(viewport=PHONE, base_url=scene.url, has_touch=True)
    context.set_default_timeout(PATIENCE)
    return context.new_page()


def test_no_page_scrolls_sideways(phone: Page, scene: Scene) -> None:
    scene.poison()
    scene.report_pipeline(error="x" * 300)
    scene.publish(scene.station, LONG, b"y" * 5000)
    too_wide = {}
    for shown in PAGES:
        shown.open(phone)
        wider = phone.evaluate("document.documentElement.scrollWidth - innerWidth")
        if wider > 0:
            too_wide[shown.name] = wider
    phone.context.close()
    assert too_wide == {}


def test_a_long_name_does_not_widen_its_page(phone: Page, scene: Scene) -> None:
    scene.publish(scene.station, LONG, b"y" * 5000)
    phone.goto(f"/topics/{LONG.replace('/', '%2F')}")
    phone.locator(".fold").first.click()
    expect(phone.locator("pre.content")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    phone.context.close()


@pytest.mark.smoke
def test_cards_name_their_values_and_can_be_sorted(phone: Page, scene: Scene) -> None:
    phone.goto("/topics")
    card = phone.locator("tbody tr").first
    label = card.locator("td").first.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert label == '"Rate"'
    phone.get_by_label("Sort by").select_option("-topic")
    expect(phone.locator("tbody th").last).to_have_text(re.compile(r"bmtp/42|\$audit/\w+"))
    phone.context.close()
