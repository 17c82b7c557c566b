"""Alerts on the overview lead to where they can be looked into, and go away."""

import os
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from headwater import control
from tests.console.browser.axe import serious_findings
from tests.console.browser.scene import DEAD, QUEUE, Scene

LAZY = "psmb/4711"


def alert(page: Page, text: str) -> Locator:
    return page.get_by_role("list", name="Alerts").get_by_role("listitem").filter(has_text=text)


@pytest.mark.smoke
def test_dead_letters(page: Page, scene: Scene) -> None:
    scene.poison()
    page.goto("/")
    warning = alert(page, f"{DEAD} dead letters in {QUEUE}")
    expect(warning).to_contain_text(re.compile("Warning.*first seen"))
    assert serious_findings(page) == []
    warning.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(page.get_by_role("columnheader", name="Dead letters")).to_have_attribute(
        "aria-sort", "descending"
    )
    expect(page.locator("tbody tr").first).to_contain_text(QUEUE)
    page.go_back()
    expect(warning).to_be_visible()
    control.call(scene.broker.data, "queue.purge", name=QUEUE)
    expect(warning).to_be_hidden()


def test_a_slow_subscriber(page: Page, scene: Scene) -> None:
    lazy = scene.broker.subscriber("flood", 4711)
    publisher = scene.broker.publisher("flood")
    for _ in range(160):
        publisher.messages(*[os.urandom(200)] * 1000)
    publisher.close()
    page.goto("/")
    warning = alert(page, "a subscriber is 100,000 messages or more behind")
    warning.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Connections")
    expect(page.locator("tbody tr").first).to_contain_text(LAZY)
    lazy.close()
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(warning).to_be_hidden()
