"""Who may do what, and what browsers cannot be tricked into."""

import inspect
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.console.routes import lists, live, messages, queues, users
from headwater.identity.users import FILE, Users
from tests.console.stand import MARK, Events, client_of, console_of, events, publish
from tests.e2e.process import PATIENCE, BrokerProcess, eventually

PASSWORD = "correct horse"
ROLES = ("viewer", "reader", "operator")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A console with a user of each role."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    data.mkdir()
    users = Users(data / FILE)
    for role in ROLES:
        users.add(role, role, PASSWORD)
    with console_of(data, HEADWATER_CONSOLE_SESSION_HOURS="0.1") as running:
        publish(running, "secret", b"words")
        yield running


@contextmanager
def log_in(broker: BrokerProcess, name: str) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        body = {"name": name, "password": PASSWORD}
        response = client.post("/api/v1/login", json=body, headers=MARK)
        assert response.status_code == 200, response.text
        yield client


#: What each role may do: method, path, body, and the least role.
ASKED: list[tuple[str, str, Any, str]] = [
    ("GET", "/api/v1/overview", None, "viewer"),
    ("GET", "/api/v1/topics", None, "viewer"),
    ("GET", "/api/v1/connections", None, "viewer"),
    ("GET", "/api/v1/subscriptions", None, "viewer"),
    ("GET", "/api/v1/queues", None, "viewer"),
    ("GET", "/api/v1/log", None, "viewer"),
    ("GET", "/api/v1/pipelines", None, "viewer"),
    ("GET", "/metrics", None, "viewer"),
    ("GET", "/api/v1/topics/secret/messages", None, "reader"),
    ("GET", "/api/v1/topics/secret/messages/0", None, "reader"),
    ("GET", "/api/v1/topics/secret/messages/0/payload", None, "reader"),
    ("POST", "/api/v1/topics/other/messages", {"text": "x"}, "operator"),
    ("POST", "/api/v1/messages/0/publish", {}, "operator"),
    ("DELETE", "/api/v1/connections/999999", None, "operator"),
    ("POST", "/api/v1/queues/none/redrive", {}, "operator"),
    ("POST", "/api/v1/queues/none/purge", None, "operator"),
    ("GET", "/api/v1/users", None, "operator"),
    ("DELETE", "/api/v1/users/nobody", None, "operator"),
]


@pytest.mark.parametrize("role", ROLES)
def test_the_matrix_of_roles(guarded: BrokerProcess, role: str) -> None:
    with log_in(guarded, role) as client:
        assert client.get("/api/v1/me").json() == {"name": role, "role": role, "local": False}
        for method, path, body, least in ASKED:
            response = client.request(method, path, json=body, headers=MARK)
            allowed = ROLES.index(role) >= ROLES.index(least)
            assert (response.status_code != 403) == allowed, (path, response.text)
            assert response.status_code != 401
        tail = client.get("/api/v1/topics/secret/live") if role == "viewer" else None
        assert tail is None or tail.status_code == 403


def test_without_a_login_nothing_is_told(guarded: BrokerProcess) -> None:
    with client_of(guarded) as client:
        for method, path, body, _ in ASKED:
            response = client.request(method, path, json=body, headers=MARK)
            assert response.status_code == 401, path
        assert client.get("/api/v1/live?page=overview").status_code == 401
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200
        assert client.get("/").status_code == 200


def test_sessions_end(guarded: BrokerProcess) -> None:
    with log_in(guarded, "viewer") as client:
        cookie = client.cookies["headwater_session"]
        assert client.get("/api/v1/me").status_code == 200
        assert client.post("/api/v1/logout", headers=MARK).status_code == 200
    with client_of(guarded) as other:
        other.cookies.set("headwater_session", cookie)
        assert other.get("/api/v1/me").status_code == 401


def test_the_cookie_is_strict(guarded: BrokerProcess) -> None:
    with client_of(guarded) as client:
        response = client.post(
            "/api/v1/login", json={"name": "viewer", "password": PASSWORD}, headers=MARK
        )
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "max-age=360;" in f"{cookie};"


def test_tokens(guarded: BrokerProcess) -> None:
    users = Users(guarded.data / FILE)
    token = users.add_token("operator")
    assert token not in (guarded.data / FILE).read_text()
    with client_of(guarded, token) as client:
        assert client.get("/api/v1/me").json()["name"] == "operator"
        # No browser sends a token by itself, so no mark is needed.
        assert client.post("/api/v1/topics/t/messages", json={"text": "x"}).status_code == 201
    with client_of(guarded, token + "x") as client:
        assert client.get("/api/v1/me").status_code == 401


def test_a_user_that_is_removed_is_out_at_once(guarded: BrokerProcess) -> None:
    with log_in(guarded, "operator") as operator:
        made = operator.post(
            "/api/v1/users",
            json={"name": "temp", "role": "reader", "password": PASSWORD},
            headers=MARK,
        )
        assert made.status_code == 201 and made.json()["role"] == "reader"
        again = operator.post(
            "/api/v1/users", json={"name": "temp", "password": PASSWORD}, headers=MARK
        )
        assert again.status_code == 409
        with log_in(guarded, "temp") as temp:
            assert temp.get("/api/v1/me").status_code == 200
            assert operator.delete("/api/v1/users/temp", headers=MARK).status_code == 204
            assert temp.get("/api/v1/me").status_code == 401
        names = {each["name"] for each in operator.get("/api/v1/users").json()["items"]}
        assert names == set(ROLES)


def test_no_thread_looks_at_sessions() -> None:
    """The framework would run whatever is not `async` in one; and a user that was removed had two
    of them forget the same session."""
    routers = [each.router for each in (users, live, messages, queues, lists)]
    found = [call for each in routers for route in each.routes for call in called(route.dependant)]
    assert len(found) > 50
    assert all(map(inspect.iscoroutinefunction, found))


def called(dependant: Any) -> Iterator[Any]:
    yield dependant.call
    for each in dependant.dependencies:
        yield from called(each)


def texts(stream: Events) -> list[str]:
    return [row["text"] for row in stream.rows()]


class TestOpenStreams:
    """What is open when someone loses access ends within seconds, and tells nothing more."""

    TAIL = "/api/v1/topics/secret/live"

    @pytest.fixture
    def users(self, guarded: BrokerProcess) -> Iterator[Users]:
        users = Users(guarded.data / FILE)
        users.add("temp", "reader", PASSWORD)
        yield users
        if "temp" in users.all():
            users.remove("temp")

    def test_of_a_user_that_is_removed(self, guarded: BrokerProcess, users: Users) -> None:
        with (
            log_in(guarded, "temp") as temp,
            log_in(guarded, "reader") as other,
            events(temp, self.TAIL) as tail,
            events(temp, "/api/v1/live?page=overview") as page,
            events(other, self.TAIL) as others,
        ):
            page.wait(lambda got: got)
            for _ in eventually():  # until both have begun
                publish(guarded, "secret", b"for both")
                if tail.rows() and others.rows():
                    break
            users.remove("temp")
            publish(guarded, "secret", b"for others")
            others.wait(lambda got: "for others" in texts(others))
            tail.wait_for_the_end()
            page.wait_for_the_end()
            assert set(texts(tail)) == {"for both"}
            assert others.is_open
        assert "Traceback" not in guarded.log

    def test_of_a_token(self, guarded: BrokerProcess, users: Users) -> None:
        token = users.add_token("temp")
        with client_of(guarded, token) as temp, events(temp, self.TAIL) as quiet:
            quiet.wait(lambda got: got)
            users.remove("temp")
            quiet.wait_for_the_end()

    def test_of_a_user_with_another_role(self, guarded: BrokerProcess, users: Users) -> None:
        """A user with the name of an old one has none of the old one's sessions."""
        with log_in(guarded, "temp") as temp, events(temp, self.TAIL) as tail:
            tail.wait(lambda got: got)
            users.remove("temp")
            users.add("temp", "viewer", PASSWORD)
            tail.wait_for_the_end()
            assert temp.get("/api/v1/me").status_code == 401

    def test_of_a_session_that_was_ended(self, guarded: BrokerProcess, users: Users) -> None:
        with log_in(guarded, "temp") as temp, events(temp, self.TAIL) as tail:
            tail.wait(lambda got: got)
            assert temp.post("/api/v1/logout", headers=MARK).status_code == 200
            tail.wait_for_the_end()

    def test_of_anyone_once_there_are_users(self, tmp_path: Path) -> None:
        with (
            console_of(tmp_path / "data") as broker,
            client_of(broker) as anyone,
            events(anyone, "/api/v1/live?page=overview") as page,
        ):
            page.wait(lambda got: got)
            Users(tmp_path / "data" / FILE).add("first", "operator", PASSWORD)
            page.wait_for_the_end()


def test_attempts_to_log_in_are_limited(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    Users(data / FILE).add("alice", "viewer", PASSWORD)
    with console_of(data) as broker, client_of(broker) as client:

        def attempt(password: str) -> httpx.Response:
            body = {"name": "alice", "password": password}
            return client.post("/api/v1/login", json=body, headers=MARK)

        assert [attempt("wrong wrong").status_code for _ in range(5)] == [401] * 5
        # To look at a password takes time, maybe as long as the first waits; but they double.
        for _ in eventually():
            refused = attempt("wrong wrong")
            if refused.status_code == 429:
                wait = int(refused.headers["retry-after"])
                assert wait >= 1
                if wait >= 8:
                    break
                time.sleep(wait)
        refused = attempt(PASSWORD)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        time.sleep(int(refused.headers["retry-after"]) + 0.1)
        assert attempt(PASSWORD).status_code == 200


class TestBrowsers:
    def test_other_sites_cannot_change_anything(
        self, broker: BrokerProcess, client: httpx.Client
    ) -> None:
        path = "/api/v1/topics/t/messages"
        bare = client.post(path, json={"text": "x"})
        assert bare.status_code == 403 and bare.json()["error"]["code"] == "missing_csrf_header"
        evil = {**MARK, "Origin": "http://evil.example"}
        assert client.post(path, json={"text": "x"}, headers=evil).status_code == 403
        nowhere = {**MARK, "Origin": "http://1]2"}
        assert client.post(path, json={"text": "x"}, headers=nowhere).status_code == 403
        own = {**MARK, "Origin": f"http://127.0.0.1:{broker.ports['console']}"}
        assert client.post(path, json={"text": "x"}, headers=own).status_code == 201
        bare = client.delete("/api/v1/connections/1")
        assert bare.status_code == 403

    @pytest.mark.parametrize("path", ["/", "/api/v1/me", "/api/v1/nothing", "/healthz"])
    def test_no_page_can_be_framed(self, client: httpx.Client, path: str) -> None:
        headers = client.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"

    @pytest.mark.parametrize(
        ("host", "known"),
        [
            ("evil.example", False),
            ("localhost.evil.example:80", False),
            ("", False),
            ("[::1", False),
            ("localhost:8090", True),
            ("192.0.2.7", True),
            ("[::1]:8090", True),
        ],
    )
    def test_names_that_are_not_ours_are_refused(
        self, client: httpx.Client, host: str, known: bool
    ) -> None:
        response = client.get("/api/v1/me", headers={"Host": host})
        # An empty or broken Host may already be refused by the HTTP server.
        assert response.status_code == 200 if known else response.status_code in (400, 421)

    def test_files_outside_are_not_served(self, client: httpx.Client) -> None:
        for path in ("/..%2f..%2fapp.py", "/%2e%2e/app.py", "/static/../../users.py"):
            response = client.get(path)
            assert "import" not in response.text.split("\n")[0], path
            assert response.status_code in (200, 404)


def test_without_users_nobody_gets_in_where_everyone_has_to_say_who_they_are(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    settings = {"HEADWATER_LISTENER_CONSOLE_ANONYMOUS": "false"}
    with console_of(data, **settings) as broker, client_of(broker) as client:
        response = client.get("/api/v1/overview")
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "no_users"
        assert "headwater user add" in response.json()["error"]["message"]
        users = Users(data / FILE)
        users.add("me", "operator")
        with client_of(broker, users.add_token("me")) as mine:
            assert mine.get("/api/v1/overview").status_code == 200


def headwater(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE)


def test_the_command(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    assert "There are no users" in headwater("user", "list", *data).stdout
    made = headwater("user", "add", "ann", "--role", "viewer", *data, stdin=PASSWORD + "\n")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in (tmp_path / FILE).read_text()
    bot = headwater("user", "add", "bot", "--token", "--json", *data)
    assert json.loads(bot.stdout)["token"].startswith("hw_")
    more = headwater("user", "token", "ann", "--json", *data)
    assert json.loads(more.stdout)["token"].startswith("hw_")
    listed = json.loads(headwater("user", "list", "--json", *data).stdout)
    assert [(each["name"], each["role"], each["tokens"]) for each in listed] == [
        ("ann", "viewer", 1),
        ("bot", "operator", 1),
    ]
    short = headwater("user", "add", "eve", *data, stdin="short\n")
    assert short.returncode == 1 and "8 to 1024 characters" in short.stderr
    twice = headwater("user", "add", "ann", *data, stdin=PASSWORD + "\n")
    assert twice.returncode == 1 and "already" in twice.stderr
    assert headwater("user", "remove", "ann", *data).returncode == 0
    gone = headwater("user", "remove", "ann", *data)
    assert gone.returncode == 1 and 'there is no user "ann"; there are bot' in gone.stderr


def test_tls(tmp_path: Path) -> None:
    tls = Path(__file__).parent.parent / "e2e" / "tls"
    certificate = next(tls.glob("*cert*"), None) or next(tls.glob("*.pem"))
    key = next(tls.glob("*key*"))
    with console_of(
        tmp_path / "data",
        HEADWATER_LISTEN_CONSOLE="tls://127.0.0.1:0",
        HEADWATER_TLS_CERTIFICATE=str(certificate),
        HEADWATER_TLS_KEY=str(key),
    ) as broker:
        base = f"https://127.0.0.1:{broker.ports['console']}"
        with httpx.Client(base_url=base, verify=False, timeout=PATIENCE, trust_env=False) as client:
            for _ in eventually():
                if client.get("/api/v1/me").status_code == 200:
                    break
