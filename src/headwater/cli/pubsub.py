"""`headwater pub` and `headwater sub`: publish and subscribe from the command line."""

import asyncio
import base64
import json
import os
import random
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from headwater.cli import common
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.client import Message, Target
    from headwater.config import Config

READ_BYTES = 64 * 1024

UrlArgument = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="protocol://[user:password@]host[:port]/topic, for example "
        "bpsp://localhost/sensors/a. The protocol is psmb, bmtp, prism, bpsp or crystal; the topic "
        "is taken as it stands. Secrets: prism://app:secret@host or HEADWATER_PRISM_CLIENT_ID and "
        "HEADWATER_PRISM_CLIENT_SECRET; crystal://secret@host or HEADWATER_CRYSTAL_SECRET_KEY; "
        "otherwise those of the configuration are taken.",
    ),
]


def pub(
    url: UrlArgument,
    payloads: Annotated[
        list[str],
        typer.Argument(
            metavar="MESSAGE",
            help="The messages; '-' reads them from standard input, one per line.",
        ),
    ],
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="Add a header, if the protocol has headers.",
        ),
    ] = None,
    ack: Annotated[bool, typer.Option(help="Wait until the messages are durable.")] = True,
) -> None:
    """Publish messages to a topic."""
    asyncio.run(_publish(url, payloads, header or [], ack))


def sub(
    url: UrlArgument,
    as_json: common.JsonOption = False,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", metavar="N", min=1, help="Stop after N messages."),
    ] = None,
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="Begin with the oldest message in the log (PSMB only)."),
    ] = False,
    subscriber: Annotated[
        int | None,
        typer.Option(
            "--subscriber",
            min=0,
            max=2**64 - 1,
            metavar="ID",
            help="Continue as this durable subscriber (PSMB only).",
        ),
    ] = None,
) -> None:
    """Subscribe, and print each message until Ctrl-C.

    The URL's topic depends on the protocol: a pattern with + and * for BPSP, a PCRE pattern for
    PSMB, a channel for BMTP (42 or bmtp/42), a topic for CrystalConnector, the name of a queue or
    nothing for Prism Notify. Over BMTP and Prism Notify, each message is acknowledged when it has
    been printed. A message is printed as topic and payload,
    or with --json as one JSON object on a line.
    """
    if from_start and subscriber is None:
        subscriber = random.getrandbits(64)
    asyncio.run(_subscribe(url, as_json, count, subscriber))


async def _publish(url: str, payloads: list[str], headers: list[str], ack: bool) -> None:
    from headwater.client import connect

    target = _target(url)
    pairs = tuple(_pair(header) for header in headers)
    async with connect(target, _configuration(target)) as client:
        for payload in payloads:
            if payload != "-":
                await client.publish(target.topic, payload.encode(), headers=pairs, ack=ack)
                continue
            async for lines in _lines(sys.stdin.buffer):
                await client.publish(target.topic, *lines, headers=pairs, ack=ack)


async def _lines(stream: BinaryIO) -> AsyncIterator[list[bytes]]:
    """The lines of a stream, as many at a time as there are."""
    rest = b""
    while chunk := await asyncio.to_thread(os.read, stream.fileno(), READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _subscribe(url: str, as_json: bool, count: int | None, subscriber: int | None) -> None:
    from headwater.client import PsmbClient, connect

    target = _target(url, nameless=("prism",))  # an app has a queue without a name
    async with connect(target, _configuration(target)) as client:
        if subscriber is None:
            await client.subscribe(target.topic)
        elif isinstance(client, PsmbClient):
            await client.subscribe(target.topic, subscriber)
        else:
            raise HeadwaterError(f"{target.scheme} has no durable subscriptions; psmb has")
        async for message in client:
            print(_as_json(message) if as_json else _as_text(message), flush=True)
            if count is not None:
                count -= 1
                if not count:
                    return


def _target(url: str, nameless: tuple[str, ...] = ()) -> "Target":
    """The parsed URL; protocols in `nameless` need no topic."""
    from headwater.client import Target

    target = Target.parse(url)
    if not target.topic and target.scheme not in nameless:
        raise HeadwaterError(f"the URL names no topic: {url}")
    return target


def _configuration(target: "Target") -> "Config | None":
    """The configuration, if the protocol needs it: the others work even if it has a mistake."""
    if target.scheme in ("psmb", "bpsp"):
        return None
    return common.load_config().config


def _pair(header: str) -> tuple[str, str]:
    name, separator, value = header.partition("=")
    if not separator or not name:
        raise HeadwaterError(f"write a header as NAME=VALUE, not: {header}")
    return name, value


def _as_text(message: "Message") -> str:
    return f"{message.topic} {message.payload.decode(errors='backslashreplace')}"


def _as_json(message: "Message") -> str:
    shown: dict[str, object] = {"topic": message.topic}
    try:
        shown["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        shown["payload"] = base64.b64encode(message.payload).decode()
        shown["encoding"] = "base64"
    if message.headers:
        shown["headers"] = dict(message.headers)
    return json.dumps(shown, ensure_ascii=False)
