"""A deployed SDK of Prism reads 8,192 bytes at a time, and needs the header of a frame whole."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from headwater.protocols.prism import codec as prism
from headwater.protocols.websocket import BINARY, masked_frame
from tests.e2e.process import ALL_FIVE, APP, SECRET, BrokerProcess

READ_BYTES = 8192
BURST = 100
#: Of frames. If many of them are sent together, a header lies across the end of the first reads.
SIZES = (8191, 8190, 8189, 4095)
QUEUES = "".join(f'[[prism.queues]]\napp = "{APP}"\nname = "{size}"\n' for size in SIZES)


class SdkReader:
    """Reads as that SDK does. A payload may go on in the next read, but a header that does is taken
    for something else. Whatever a frame is, its payload is a message."""

    def __init__(self, broker: BrokerProcess, queue: str = "") -> None:
        self._wire = broker.wire("prism")
        target = prism.signed_target("/platform/notify", APP, SECRET, int(time.time()))
        self._wire.send(prism.PrismClientSession(1 << 20).request("localhost", target, ()))
        lines = b""
        while not lines.endswith(b"\r\n\r\n"):
            lines += self._wire.read(1)
        self._command(b"\x02" + len(queue).to_bytes(2, "big") + queue.encode())

    def _command(self, command: bytes) -> None:
        self._wire.send(masked_frame(BINARY, command, bytes(4)))

    def acknowledge(self, tag: str) -> None:
        self._command(b"\x03" + tag.encode())

    def messages(self) -> Iterator[bytes]:
        kept = b""
        while chunk := self._wire.socket.recv(READ_BYTES):
            kept += chunk
            while kept:
                header = _header_size(kept)
                assert len(kept) >= header, f"stumbled over {len(kept)} bytes of a header"
                size = _payload_size(kept, header)
                if len(kept) < header + size:
                    break
                yield kept[header : header + size]
                kept = kept[header + size :]


def _header_size(data: bytes) -> int:
    return 2 if len(data) < 2 else {126: 4, 127: 10}.get(data[1] & 0x7F, 2)


def _payload_size(data: bytes, header: int) -> int:
    return data[1] & 0x7F if header == 2 else int.from_bytes(data[2:header], "big")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("sdk") / "data", toml=ALL_FIVE + QUEUES) as running:
        yield running


@pytest.mark.parametrize("size", SIZES)
def test_a_burst_is_read_without_stumbling(broker: BrokerProcess, size: int) -> None:
    around = f'{{"time":1700000000,"tag":"1","key":"{size}","body":""}}'
    filling = b"x" * (size - 4 - len(around) - 3)
    bodies = [b"%03d" % number + filling for number in range(BURST)]
    broker.publisher(str(size)).messages(*bodies)
    sdk = SdkReader(broker, str(size))
    for body, message in zip(bodies, islice(sdk.messages(), BURST), strict=True):
        found = json.loads(message)
        assert found["body"].encode() == body
        sdk.acknowledge(found["tag"])


def test_the_end_is_a_short_message_that_means_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", toml=ALL_FIVE) as broker:
        sdk = SdkReader(broker)
        messages = sdk.messages()
        broker.publisher("t").messages(b"1")
        sdk.acknowledge(json.loads(next(messages))["tag"])
        assert broker.stop() == 0
        (farewell,) = messages
    assert len(farewell) < 40
    with pytest.raises(ValueError, match="codec"):
        json.loads(farewell)
