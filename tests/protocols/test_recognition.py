"""One port for all: every vector of every protocol is recognised as what it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands import Close
from headwater.protocols import recognition
from headwater.protocols.any_port import AnyPortSession
from headwater.protocols.base import Session, Terms
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.crystal import codec as crystal
from headwater.protocols.prism import codec as prism
from headwater.protocols.psmb import codec as psmb
from headwater.protocols.recognition import LONGEST_PATH, in_order
from headwater.registry import REGISTRY
from tests.protocols.vectors import Send, Vector, files, service_of

TERMS = Terms("192.0.2.1:5000")
BEGINNINGS = [
    vector
    for file in files()
    for vector in file.vectors
    if vector.after is None and isinstance(vector.steps[0].what, Send)
]


PROTOCOLS = in_order(REGISTRY.values())


def recognise(data: bytes) -> str | None:
    return recognition.recognise(data, PROTOCOLS)


def first_bytes(vector: Vector) -> bytes:
    assert isinstance(vector.steps[0].what, Send)
    return vector.steps[0].what.data


def greets_like_its_protocol(vector: Vector) -> bool:
    """Vectors of bad beginnings belong to nobody."""
    data = first_bytes(vector)
    heads = {
        "psmb": data.startswith(b"PSM"),
        "bmtp": data[0] >> 4 == 1 and data[1:3] == b"BM",
        "prism": data.startswith(b"GET /") and any(p.encode() in data for p in prism.PATHS),
        "crystal": data.startswith(b"GET "),
        "bpsp": len(data) > 2 and data[2] < 9,
    }
    return len(data) >= 3 and heads[vector.protocol]


@pytest.mark.parametrize(
    "vector",
    [vector for vector in BEGINNINGS if greets_like_its_protocol(vector)],
    ids=lambda vector: f"{vector.protocol}-{vector.name}",
)
def test_every_vector_is_recognised(vector: Vector) -> None:
    data = first_bytes(vector)
    found = next(filter(None, (recognise(data[:size]) for size in range(len(data) + 1))), None)
    if vector.protocol == "prism" and not any(
        data.startswith((f"GET {path} ".encode(), f"GET {path}?".encode())) for path in prism.PATHS
    ):
        return  # the path tells that it is not for Prism
    assert found == vector.protocol


def test_all_protocols_are_among_them() -> None:
    assert {vector.protocol for vector in BEGINNINGS} == set(REGISTRY)


@pytest.mark.property
@given(st.integers(0, 0xFFFF), st.sampled_from([bpsp.CONNECT, bpsp.PUB, bpsp.SUB, bpsp.UNSUB]))
def test_no_bpsp_frame_looks_like_another_protocol(headers_size: int, opcode: int) -> None:
    assert recognise(headers_size.to_bytes(2, "big") + bytes([opcode])) == bpsp.NAME


def test_a_path_tells_prism_from_crystal() -> None:
    assert recognise(b"GET /api/notify?client_id=x HTTP/1.1") == prism.NAME
    assert recognise(b"GET /platform/notify HTTP/1.1") == prism.NAME
    assert recognise(b"GET /api/platform/notify ") == prism.NAME
    assert recognise(b"GET /api/notifyx ") == crystal.NAME
    assert recognise(b"GET / ") == crystal.NAME
    assert recognise(b"GET /api/noti") is None
    assert recognise(b"GET /" + b"x" * LONGEST_PATH) == crystal.NAME


def test_the_right_session_goes_on_with_all_bytes() -> None:
    made: list[str] = []

    def make(name: str, terms: Terms) -> Session:
        made.append(name)
        assert terms is TERMS
        return service_of(name, {}).session(terms)

    session = AnyPortSession(TERMS, PROTOCOLS, {"psmb": lambda terms: make("psmb", terms)})
    hello = psmb.PsmbClientSession.hello()
    for index in range(2):
        assert not list(session.receive(hello[index : index + 1]))
        assert session.successor is None
    assert not list(session.receive(hello[2:]))
    assert session.successor is not None
    assert session.successor[1] == hello
    assert made == ["psmb"]


def test_a_protocol_that_is_not_served_is_closed() -> None:
    session = AnyPortSession(TERMS, PROTOCOLS, {})
    (command,) = session.receive(psmb.PsmbClientSession.hello())
    assert isinstance(command, Close)


def test_after_a_silence_the_one_protocol_whose_broker_speaks_first_goes_on() -> None:
    assert [each.name for each in PROTOCOLS if each.broker_speaks_first] == [bpsp.NAME]
    sessions = {name: service_of(name, {}).session for name in ("psmb", "bpsp")}
    session = AnyPortSession(TERMS, PROTOCOLS, sessions, silent_after=2.0)
    session.silent()
    assert session.successor is not None
    follower, rest = session.successor
    assert (follower.protocol, rest) == (bpsp.NAME, b"")
    begun = AnyPortSession(TERMS, PROTOCOLS, sessions, silent_after=2.0)
    assert not list(begun.receive(b"P"))
    begun.silent()
    assert begun.successor is None
