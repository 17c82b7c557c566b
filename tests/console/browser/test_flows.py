"""What an operator does on the pages, with real clients on the other side."""

import asyncio
import json
import re
import socket
import threading
from contextlib import suppress

import pytest
from playwright.sync_api import Locator, Page, expect

from headwater.client import PsmbClient
from headwater.protocols.bpsp import codec as bpsp
from headwater.slowing import ANSWERS, REASONS
from tests.console.browser.chromium import Watch
from tests.console.browser.scene import (
    DASHBOARD,
    DEAD,
    HOST,
    LOBBY,
    ORDER,
    QUEUE,
    SHOP,
    STATION,
    TEMPERATURE,
    Scene,
    reading,
)
from tests.e2e.process import PATIENCE, eventually


def row(page: Page, text: str) -> Locator:
    return page.locator("tbody tr", has_text=text)


def open_topic(page: Page, topic: str) -> None:
    page.goto("/topics")
    page.get_by_role("link", name=topic, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(topic)


@pytest.mark.smoke
def test_the_overview_shows_what_goes_in_and_out(page: Page, scene: Scene) -> None:
    page.goto("/")
    expect(page).to_have_title("Overview · Headwater")
    expect(page.locator(".tile", has_text="Topics")).to_contain_text(re.compile("[5-9]"))
    expect(page.get_by_role("img", name="Messages per second")).to_be_visible()
    for name in ("psmb", "bmtp", "prism", "bpsp", "crystal"):
        expect(page.locator(".protocols li", has_text=name)).to_be_visible()
    page.get_by_role("button", name="Bytes").click()
    expect(page.get_by_role("img", name="Bytes per second")).to_be_visible()


def test_numbers_on_the_overview_are_live(page: Page, scene: Scene) -> None:
    page.goto("/")
    watermark = page.locator(".tile", has_text="Log").locator(".tile-detail")
    expect(watermark).to_contain_text("watermark")
    before = watermark.inner_text()
    scene.publish(scene.station, TEMPERATURE, reading(1))
    expect(watermark).not_to_have_text(before)


def test_which_client_publishes_to_a_topic(page: Page, scene: Scene) -> None:
    """From the start page, with links alone: topic, its messages, the client behind them."""
    page.goto("/")
    page.get_by_role("link", name="Topics").first.click()
    page.get_by_role("link", name=TEMPERATURE).click()
    published = page.locator(".publishers")
    expect(published).to_contain_text("bpsp")
    published.get_by_role("link", name=STATION).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Connections")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text(STATION)


@pytest.mark.smoke
def test_messages_are_browsed_and_decoded(page: Page, scene: Scene) -> None:
    open_topic(page, TEMPERATURE)
    rows = page.locator("tr.message")
    expect(rows).to_have_count(50)
    newest = int(rows.first.locator(".fold").inner_text().strip("▸▾ \n").replace(",", ""))
    page.get_by_role("button", name="Older").click()
    expect(rows.first.get_by_role("button", name=f"Message {newest}", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Newest").click()
    page.get_by_role("button", name=f"Message {newest}", exact=True).click()
    content = page.locator("pre.content")
    expect(content).to_contain_text('"station": 7')
    page.get_by_role("button", name="Hex").click()
    expect(content).to_contain_text("00000000  7b 22")
    page.get_by_role("button", name="Text").click()
    expect(content).to_have_text(re.compile(r'^{"celsius": [^\n]*"station": 7, "n": \d+}$'))


def test_messages_from_an_offset_and_from_a_time(page: Page, scene: Scene) -> None:
    open_topic(page, TEMPERATURE)
    page.get_by_label("From offset").fill("3")
    page.get_by_role("button", name="Go to offset").click()
    expect(page.get_by_role("button", name="Message 3", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Message 2", exact=True)).to_have_count(0)
    page.get_by_label("From time").fill("2020-01-01T00:00:00")
    page.get_by_role("button", name="Go to time").click()
    expect(page.get_by_role("button", name="Message 0", exact=True)).to_be_visible()


def test_bytes_that_are_no_text_are_shown_as_hex(page: Page, scene: Scene) -> None:
    open_topic(page, LOBBY)
    page.locator(".fold").first.click()
    expect(page.locator("pre.content")).to_contain_text("00000000  01 13 00 ff 13")


@pytest.mark.smoke
def test_a_message_is_published_from_the_page(page: Page, scene: Scene, watch: Watch) -> None:
    watch.expected |= {404}  # a topic begins with its first message
    listener = PsmbClient(HOST, scene.broker.ports["psmb"])
    scene.crowd.join(listener)
    scene.crowd.run(listener.subscribe("from/console"))
    page.goto("/topics/from%2Fconsole?view=publish")
    page.get_by_label("Content", exact=True).fill('{"hello": "world"}')
    page.get_by_role("button", name="Add a header").click()
    page.get_by_label("Name of the header").fill("colour")
    page.get_by_label("Value of the header").fill("blue")
    page.get_by_label("Content", exact=True).press("Control+Enter")
    expect(page.get_by_text("Stored at offset")).to_be_visible()
    message = scene.crowd.run(asyncio.wait_for(anext(listener), PATIENCE))
    assert message.payload == b'{"hello": "world"}'
    page.get_by_role("link", name="Show it").click()
    page.locator(".fold").first.click()
    expect(page.locator("tr.detail")).to_contain_text("blue")


def test_an_old_message_is_published_again(page: Page, scene: Scene) -> None:
    listener = PsmbClient(HOST, scene.broker.ports["psmb"])
    scene.crowd.join(listener)
    scene.crowd.run(listener.subscribe("chat/general"))
    open_topic(page, "chat/general")
    page.locator(".fold").first.click()
    page.get_by_role("button", name="Publish again").click()
    page.get_by_role("dialog").get_by_role("button", name="Publish again").click()
    expect(page.get_by_text("Published again at offset")).to_be_visible()
    message = scene.crowd.run(asyncio.wait_for(anext(listener), PATIENCE))
    assert message.payload == b"hello from the other side"


@pytest.mark.smoke
def test_a_topic_is_watched_live_and_paused(page: Page, scene: Scene, watch: Watch) -> None:
    watch.expected |= {404}
    page.goto("/topics/watched?view=live")
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    until_seen(page, scene, "first one")
    # A second page on the same tail tells when it has passed: its publisher gets no answer.
    other = page.context.new_page()
    other.goto("/topics/watched?view=live")
    until_seen(other, scene, "for both")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    scene.publish(scene.game, "watched", b"while paused")
    expect(row(other, "while paused")).to_have_count(1)
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    page.get_by_role("button", name="Continue").click()
    until_seen(page, scene, "after the pause")  # which came behind the other
    expect(row(page, "while paused")).to_have_count(0)


def until_seen(page: Page, scene: Scene, text: str) -> None:
    """A tail shows what comes after it has begun; when that is, only its first row tells."""
    for _ in eventually():
        scene.publish(scene.game, "watched", text.encode())
        page.wait_for_timeout(200)
        if row(page, text).count():
            return


def test_a_tail_can_be_filtered(page: Page, scene: Scene) -> None:
    scene.publish(scene.game, "watched", b"long ago")
    page.goto("/topics/watched?view=live")
    page.get_by_label("Only messages that contain").fill("needle")
    expect(page.get_by_text("that contain “needle”")).to_be_visible()
    until_seen(page, scene, "a needle")
    scene.publish(scene.game, "watched", b"hay", b"another needle")
    expect(row(page, "another needle")).to_have_count(1)
    expect(row(page, "hay")).to_have_count(0)


def test_a_tail_counts_what_it_does_not_show(page: Page, scene: Scene) -> None:
    scene.publish(scene.game, "watched", b"long ago")
    page.goto("/topics/watched?view=live")
    until_seen(page, scene, "begin")
    scene.publish(scene.game, "watched", *[b"flood %d" % n for n in range(5000)])
    for _ in eventually():  # they may come in several pieces
        skipped = page.locator(".skipped").inner_text().split()[0]
        if int(skipped.replace(",", "")) > 4000:
            break
    assert page.locator("tr.message").count() <= 500


def test_many_topics_are_watched_by_a_pattern(page: Page, scene: Scene) -> None:
    page.goto("/topics")
    page.get_by_label("Pattern of topics to watch").fill("many/.*")
    page.get_by_role("button", name="Watch a pattern live").click()
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    for _ in eventually():
        scene.publish(scene.station, "many/a", b"one")
        scene.publish(scene.station, "many/b", b"two")
        page.wait_for_timeout(200)
        if row(page, "many/a").count() and row(page, "many/b").count():
            return


def test_a_connection_is_closed_after_asking(page: Page, scene: Scene) -> None:
    page.goto("/connections")
    page.get_by_label("Search by client").fill(SHOP)
    expect(page.locator("tbody tr")).to_have_count(1)
    address = page.locator("tbody tr").inner_text()
    page.get_by_role("button", name="Close").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator("tbody tr")).to_contain_text(SHOP)
    page.get_by_role("button", name="Close").click()
    dialog.get_by_role("button", name="Close connection").click()
    # The client comes back by itself, from another port.
    expect(page.locator("tbody tr")).not_to_have_text(address)
    expect(page.get_by_role("status")).to_contain_text("Closed")


def test_who_takes_the_loop_and_is_slowed(page: Page, scene: Scene) -> None:
    """From the overview to the clients by their share of the loop, and to one of them."""
    page.goto("/")
    expect(page.get_by_role("region", name="Event loop")).to_contain_text("Longest lag")
    page.get_by_role("link", name="Clients by share").click()
    expect(page.get_by_role("columnheader", name="Loop")).to_have_attribute(
        "aria-sort", "descending"
    )
    page.get_by_label("Search by client").fill(STATION)
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody tr").get_by_role("link", name=STATION).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(STATION)
    expect(page.get_by_text("Loop time, total")).to_be_visible()
    expect(page.get_by_text("Never. The broker has read")).to_be_visible()


def test_a_client_that_does_not_read_its_answers_is_slowed(
    page: Page, scene: Scene, watch: Watch
) -> None:
    watch.expected.add(404)  # it is gone
    wire = scene.broker.bpsp()
    request = bpsp.frame(bpsp.PUB, bpsp.format_headers((("x-topic", "t"),)), b"", bpsp.ACK)
    sending = threading.Thread(target=send_until_closed, args=(wire.socket, request * 1000))
    sending.start()
    page.goto(f"/connections?q=127.0.0.1:{wire.socket.getsockname()[1]}")
    expect(page.locator("tbody tr")).to_contain_text("answers 100 %")
    page.locator("tbody a.name").click()
    expect(row(page, ANSWERS)).to_contain_text(REASONS[ANSWERS])
    page.get_by_role("button", name="Close").click()
    page.get_by_role("dialog").get_by_role("button", name="Close connection").click()
    expect(page.get_by_text("This connection is closed")).to_be_visible()
    sending.join()
    wire.close()


def send_until_closed(link: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        while True:
            link.sendall(data)


def test_deleting_dead_letters_asks_and_escape_says_no(page: Page, scene: Scene) -> None:
    scene.poison()
    page.goto(f"/queues/{QUEUE.replace('/', '%2F')}")
    page.get_by_role("button", name="Delete all…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Delete {DEAD} dead letters?")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert scene.dead() == DEAD
    page.get_by_role("button", name="Delete all…").click()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text(f"{DEAD} dead letters deleted.")).to_be_visible()
    assert scene.dead() == 0


@pytest.mark.smoke
def test_dead_letters_are_redriven(page: Page, scene: Scene) -> None:
    listener = PsmbClient(HOST, scene.broker.ports["psmb"])
    scene.poison()
    scene.crowd.join(listener)
    scene.crowd.run(listener.subscribe(ORDER))
    page.goto("/")
    page.get_by_role("link", name="redrive them").click()
    page.get_by_role("link", name=f"{DEAD} dead").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(QUEUE)
    expect(page.locator("tbody tr")).to_have_count(DEAD)
    expect(page.locator("tbody tr").first).to_contain_text("not acknowledged")
    expect(page.locator("tbody tr").first).to_contain_text('"order": 100')
    page.get_by_role("button", name="Redrive all").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text(f"{DEAD} dead letters redriven.")).to_be_visible()
    expect(page.get_by_text("None. A message")).to_be_visible()
    assert scene.dead() == 0
    message = scene.crowd.run(asyncio.wait_for(anext(listener), PATIENCE))
    assert json.loads(message.payload)["order"] >= 1000


def test_subscriptions_show_position_and_lead_to_the_client(page: Page, scene: Scene) -> None:
    page.goto("/subscriptions")
    page.get_by_label("Search by filter").fill("weather")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name=DASHBOARD).click()
    expect(page.locator("tbody tr")).to_contain_text("bpsp")


@pytest.mark.smoke
def test_pipelines_show_how_far_they_are(page: Page, scene: Scene) -> None:
    page.goto("/pipelines")
    scene.report_pipeline(error="Contract orders: total is not a number")
    expect(page.locator("tbody tr", has_text="bronze")).to_contain_text("99.5 %")
    expect(page.locator(".alert.critical")).to_contain_text("total is not a number")


def test_an_address_that_leads_nowhere(page: Page, scene: Scene) -> None:
    page.goto("/nowhere")
    page.get_by_role("link", name="Go to the overview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
