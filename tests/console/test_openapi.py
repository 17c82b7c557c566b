"""All routes, asked what their description allows: the answers must be what it promises."""

from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks

from headwater.identity.users import FILE, Users
from tests.console.stand import client_of, console_of, publish
from tests.e2e.process import BrokerProcess

CHECKS = [
    checks.not_a_server_error,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
#: How often each route is asked.
EXAMPLES = 12


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("openapi") / "data"
    data.mkdir()
    Users(data / FILE).add("tester", "operator")
    with console_of(data) as running:
        publish(running, "a", b"1", b"{}", b"\xff")
        yield running


def test_every_route_answers_as_described(guarded: BrokerProcess) -> None:
    token = Users(guarded.data / FILE).add_token("tester")
    with client_of(guarded, token) as client:
        schema = schemathesis.openapi.from_dict(client.get("/api/v1/openapi.json").json())
        asked = []
        for found in schema.get_all_operations():
            operation = cast(Any, found).ok()
            if not operation.path.endswith("/live"):  # these never end
                asked.append(f"{operation.method} {operation.path}")
                ask(operation, str(client.base_url), token)
    assert len(asked) >= 24, asked


def ask(operation: Any, base: str, token: str) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def routes(case: Any) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        response = case.call(base_url=base.rstrip("/"), headers=headers)
        case.validate_response(response, checks=CHECKS)
        assert response.status_code in map(int, responses), (operation.path, response.status_code)

    responses = [code for code in operation.definition.raw["responses"] if code.isdigit()]
    routes()


def test_the_description_names_all_resources(client: httpx.Client) -> None:
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    for resource in (
        "overview",
        "topics",
        "topics/{topic}/messages",
        "topics/{topic}/live",
        "connections",
        "subscriptions",
        "queues",
        "queues/{name}/dead",
        "log",
        "pipelines",
        "users",
        "live",
    ):
        assert f"/api/v1/{resource}" in paths


def test_the_page_of_the_api_needs_no_other_site(client: httpx.Client) -> None:
    page = client.get("/api/docs")
    assert page.status_code == 200 and "text/html" in page.headers["content-type"]
    assert "//" not in page.text.replace("<!doctype", "").replace("://www.w3.org", "")
