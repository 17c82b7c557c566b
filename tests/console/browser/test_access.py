"""Who may do what: the login, and pages without the buttons that a role may not use."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from headwater.identity.users import FILE, Users
from tests.console.browser.chromium import DESKTOP, PATIENCE, Watch
from tests.console.browser.scene import HUMIDITY, QUEUE, Scene

PASSWORD = "a password of a test, long enough"
ROLES = ("viewer", "reader", "operator")
LogIn = Callable[[str], Page]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A broker of its own: with the first user, a login is needed."""
    with Scene(tmp_path_factory.mktemp("access") / "data") as running:
        running.fill()
        running.poison()
        for role in ROLES:
            add_user(running, f"some-{role}", role)
        yield running


def add_user(scene: Scene, name: str, role: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
    where = ["--data", str(scene.broker.data)]
    subprocess.run(
        [sys.executable, "-m", "headwater", "user", "add", name, "--role", role, *where],
        input=f"{PASSWORD}\n{PASSWORD}\n",
        text=True,
        check=True,
        capture_output=True,
        timeout=60,
        env=environment,
    )


@pytest.fixture
def log_in(browser: Browser, scene: Scene) -> Iterator[LogIn]:
    context = browser.new_context(viewport=DESKTOP, base_url=scene.url)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    watch = Watch(page, scene.host)
    watch.expected |= {401}  # how the page learns that it has to ask

    def as_(name: str) -> Page:
        page.goto("/topics")
        enter(page, name, PASSWORD)
        expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
        return page

    yield as_
    context.close()
    assert watch.problems == [], scene.broker.log[-4000:]


def enter(page: Page, name: str, password: str) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_wrong_password_is_refused_with_a_sentence(browser: Browser, scene: Scene) -> None:
    page = browser.new_page(base_url=scene.url)
    page.goto("/queues")
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    enter(page, "some-viewer", "not the password")
    expect(page.locator(".wrong")).not_to_be_empty()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    enter(page, "some-viewer", PASSWORD)
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    page.close()


def test_a_viewer_sees_no_content_and_no_buttons(log_in: LogIn) -> None:
    page = log_in("some-viewer")
    expect(page.get_by_role("link", name="Users")).to_have_count(0)
    page.get_by_role("link", name=HUMIDITY).click()
    expect(page.get_by_text("A viewer does not see")).to_be_visible()
    expect(page.get_by_role("button", name="Publish")).to_have_count(0)
    page.goto("/connections")
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("button", name="Close")).to_have_count(0)
    page.goto(f"/queues/{QUEUE.replace('/', '%2F')}")
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("columnheader", name="Content")).to_have_count(0)
    expect(page.get_by_role("button", name="Redrive all")).to_have_count(0)


def test_a_reader_sees_content_and_changes_nothing(log_in: LogIn) -> None:
    page = log_in("some-reader")
    page.get_by_role("link", name=HUMIDITY).click()
    page.locator(".fold").first.click()
    expect(page.locator("pre.content")).to_be_visible()
    expect(page.get_by_role("button", name="Publish again")).to_have_count(0)
    expect(page.get_by_role("button", name="Publish")).to_have_count(0)


@pytest.mark.smoke
def test_an_operator_manages_users_and_logs_out(log_in: LogIn) -> None:
    page = log_in("some-operator")
    page.get_by_role("link", name="Users").click()
    expect(page.locator("tbody tr")).to_have_count(len(ROLES))
    page.get_by_label("Name", exact=True).fill("new-one")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Add user").click()
    expect(page.locator("tbody tr", has_text="new-one")).to_contain_text("viewer")
    page.get_by_role("button", name="Remove new-one").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove user").click()
    expect(page.locator("tbody tr", has_text="new-one")).to_have_count(0)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


def test_a_user_that_is_removed_is_led_to_the_login(log_in: LogIn, scene: Scene) -> None:
    """Also from a page that only listens."""
    add_user(scene, "leaving", "reader")
    page = log_in("leaving")
    page.get_by_role("link", name=HUMIDITY).click()
    page.get_by_role("button", name="Watch live").click()
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    Users(scene.broker.data / FILE).remove("leaving")
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


def test_a_session_that_ended_leads_to_the_login(browser: Browser, scene: Scene) -> None:
    """Sessions end with the console. The page that was open is opened again after the login."""
    page = browser.new_page(base_url=scene.url)
    page.goto("/connections")
    enter(page, "some-viewer", PASSWORD)
    expect(page.locator("tbody tr").first).to_be_visible()
    scene.broker.keep_ports()
    assert scene.broker.stop() == 0
    scene.broker.start()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    enter(page, "some-viewer", PASSWORD)
    expect(page.get_by_role("heading", level=1)).to_have_text("Connections")
    page.close()


def test_an_operator_manages_rules_and_reads_the_record(log_in: LogIn) -> None:
    page = log_in("some-operator")
    page.get_by_role("link", name="Access", exact=True).click()
    expect(page.locator("tbody tr", has_text="anonymous")).to_be_visible()
    page.get_by_label("Who", exact=True).fill("role:devices")
    page.get_by_label("publish", exact=True).check()
    page.get_by_label("Topics", exact=True).fill("sensors/{user}/*")
    page.get_by_role("button", name="Allow", exact=True).click()
    rule = page.locator("tbody tr", has_text="role:devices")
    expect(rule).to_contain_text("sensors/{user}/*")
    page.get_by_label("Who is asked about").fill("some-viewer")
    page.get_by_label("Topic", exact=True).fill("sensors/a")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_text("may not publish to sensors/a")).to_be_visible()
    rule.get_by_role("button").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(rule).to_have_count(0)
    page.get_by_role("link", name="Audit", exact=True).click()
    expect(page.locator("tbody tr", has_text="access.revoke").first).to_contain_text(
        "user:some-operator"
    )
