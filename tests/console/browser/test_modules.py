"""The small modules below the pages, asked directly in the browser."""

from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

pytestmark = pytest.mark.smoke  # they cost little beside the browser


@pytest.fixture(scope="module")
def page(context: BrowserContext) -> Page:
    opened = context.new_page()
    opened.goto("/login")
    return opened


def ask(page: Page, module: str, expression: str) -> Any:
    script = f"const it = await import('/static/{module}'); return {expression};"
    return page.evaluate(f"async () => {{ {script} }}")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("it.rate(12400)", "12.4 k/s"),
        ("it.rate(0)", "0/s"),
        ("it.rate(0.4)", "0.4/s"),
        ("it.rate(999.7)", "1000/s"),
        ("it.rate(999960)", "1.0 M/s"),
        ("it.size(0)", "0 B"),
        ("it.size(1500000)", "1.5 MB"),
        ("it.size(123456789)", "123 MB"),
        ("it.count(9999)", "9,999"),
        ("it.count(12345)", "12.3 k"),
        ("it.duration(59)", "59 s"),
        ("it.duration(3600)", "1 h 0 min"),
        ("it.duration(90000)", "1 d 1 h"),
        ("it.duration(-1)", "0 s"),
        ("it.share(0)", "0 %"),
        ("it.share(0.0004)", "0 %"),
        ("it.share(0.004)", "0.4 %"),
        ("it.share(0.0996)", "10 %"),
        ("it.share(1)", "100 %"),
        ("it.span(0.012)", "12 ms"),
        ("it.span(3.42)", "3.4 s"),
        ("it.span(200)", "3 min"),
    ],
)
def test_numbers_as_people_read_them(page: Page, value: str, shown: str) -> None:
    assert ask(page, "format.js", value) == shown


def test_json_is_indented_without_changing_a_token(page: Page) -> None:
    text = '{"big":12345678901234567890,"s":"a{,}\\"b","none":[],"list":[1,{"x":1.50}]}'
    shown = ask(page, "payload.js", f"it.indent({text!r})")
    assert shown == "\n".join(
        [
            "{",
            '  "big": 12345678901234567890,',
            '  "s": "a{,}\\"b",',
            '  "none": [],',
            '  "list": [',
            "    1,",
            "    {",
            '      "x": 1.50',
            "    }",
            "  ]",
            "}",
        ]
    )


def test_hex_shows_bytes_and_characters(page: Page) -> None:
    shown = ask(page, "payload.js", "it.hex(new TextEncoder().encode('Headwater, é!'))")
    assert shown == "00000000  48 65 61 64 77 61 74 65 72 2c 20 c3 a9 21        Headwater, ..!"


def test_a_patch_keeps_the_elements_that_stay(page: Page) -> None:
    kept = ask(
        page,
        "dom.js",
        """(() => {
            const rows = (...keys) => keys.map((key) => it.h("li", { key }, `row ${key}`));
            const list = document.createElement("ul");
            it.patch(list, rows(1, 2, 3, 4));
            const before = [...list.children];
            it.patch(list, rows(5, 4, 2, 3));
            const after = [...list.children];
            return [after.map((each) => before.indexOf(each)), list.textContent];
        })()""",
    )
    assert kept == [[-1, 3, 1, 2], "row 5row 4row 2row 3"]
