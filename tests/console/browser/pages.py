"""Every page of the console: its address, and something that is only there when it is complete."""

from dataclasses import dataclass
from urllib.parse import quote

from playwright.sync_api import Page, expect

from tests.console.browser.scene import QUEUE, TEMPERATURE


@dataclass(frozen=True, slots=True)
class Shown:
    name: str
    path: str
    complete: str  # a selector
    click: str = ""  # another one, to be clicked first

    def open(self, page: Page) -> None:
        page.goto(self.path)
        if self.click:
            page.locator(self.click).first.click()
        expect(page.locator(self.complete).first).to_be_visible()


_TOPIC = f"/topics/{quote(TEMPERATURE, safe='')}"
PAGES = (
    Shown("overview", "/", ".protocols .spark svg"),
    Shown("topics", "/topics", "tbody tr"),
    Shown("topic", _TOPIC, "pre.content", click=".fold"),
    Shown("live", f"{_TOPIC}?view=live", "section[aria-label='Live messages']"),
    Shown("publish", f"{_TOPIC}?view=publish", "textarea"),
    Shown("connections", "/connections", "tbody tr"),
    Shown("connection", "/connections", "#slowed", click="tbody a.name"),
    Shown("queues", "/queues", "tbody tr"),
    Shown("queue", f"/queues/{quote(QUEUE, safe='')}", "tbody tr"),
    Shown("subscriptions", "/subscriptions", "tbody tr"),
    Shown("pipelines", "/pipelines", "main .panel"),
    Shown("users", "/users", "form"),
    Shown("api", "/api/docs", "details pre", click="summary"),
    Shown("login", "/login", "input[type=password]"),
)
