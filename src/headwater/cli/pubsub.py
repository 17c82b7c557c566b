"""`headwater pub` and `headwater sub`: publish and subscribe from the command line."""

import asyncio
import base64
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from headwater.cli import common
from headwater.cli.configuration import load_config
from headwater.errors import HeadwaterError
from headwater.registry import REGISTRY

if TYPE_CHECKING:
    from headwater.client import Message, Target
    from headwater.config import Config

READ_BYTES = 64 * 1024


def _either(names: Iterable[str], word: str = "or") -> str:
    """`a, b or c`"""
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


_PROTOCOLS = REGISTRY.values()
_EXAMPLE = next(each for each in _PROTOCOLS if not each.credentials)
_CREDENTIALS = "; ".join(each.credentials for each in _PROTOCOLS if each.credentials)
_DURABLE = [each for each in _PROTOCOLS if each.durable_subscriptions]
_DURABLE_ONLY = f"({_either((each.title for each in _DURABLE), 'and')} only)"

UrlArgument = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="protocol://[user:password@]host[:port]/topic, for example "
        f"{_EXAMPLE.name}://localhost/sensors/a. The protocol is {_either(REGISTRY)}, with an s "
        f"behind it for TLS ({_EXAMPLE.name}s://); the topic is taken as it stands. "
        f"Secrets: {_CREDENTIALS}; otherwise those of the configuration are taken.",
    ),
]


def _file_option(name: str, help_text: str) -> Any:
    return typer.Option(name, metavar="FILE", show_default=False, help=f"TLS: {help_text}")


CaOption = Annotated[
    str,
    _file_option(
        "--ca",
        "the certificates (PEM) of those who may have signed the broker's (default: "
        "HEADWATER_CLIENT_CA, else those the system trusts).",
    ),
]
CertificateOption = Annotated[
    str,
    _file_option(
        "--cert",
        "the client's own certificate (PEM), if the broker asks for one (default: "
        "HEADWATER_CLIENT_CERTIFICATE).",
    ),
]
KeyOption = Annotated[
    str,
    _file_option(
        "--key",
        "the key of that certificate, if it is in another file (default: HEADWATER_CLIENT_KEY).",
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
    ca: CaOption = "",
    cert: CertificateOption = "",
    key: KeyOption = "",
) -> None:
    """Publish messages to a topic."""
    asyncio.run(_publish(_target(url, (ca, cert, key)), payloads, header or [], ack))


def sub(
    url: UrlArgument,
    as_json: common.JsonOption = False,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", metavar="N", min=1, help="Stop after N messages."),
    ] = None,
    from_start: Annotated[
        bool,
        typer.Option(
            "--from-start", help=f"Begin with the oldest message in the log {_DURABLE_ONLY}."
        ),
    ] = False,
    subscriber: Annotated[
        int | None,
        typer.Option(
            "--subscriber",
            min=0,
            max=2**64 - 1,
            metavar="ID",
            help=f"Continue as this durable subscriber {_DURABLE_ONLY}.",
        ),
    ] = None,
    ca: CaOption = "",
    cert: CertificateOption = "",
    key: KeyOption = "",
) -> None:
    """Subscribe and print the topic and payload of each message, until Ctrl-C."""
    if from_start and subscriber is None:
        subscriber = random.getrandbits(64)
    target = _target(url, (ca, cert, key), subscribing=True)
    asyncio.run(_subscribe(target, as_json, count, subscriber))


SUB_HELP = f"""Subscribe and print the topic and payload of each message, until Ctrl-C.

The URL's topic depends on the protocol: \
{", ".join(f"{each.subscribes_to} for {each.title}" for each in _PROTOCOLS)}. \
Over {_either((each.title for each in _PROTOCOLS if each.acknowledges), "and")}, each message is \
acknowledged when it has been printed.
"""


async def _publish(target: "Target", payloads: list[str], headers: list[str], ack: bool) -> None:
    from headwater.client import connect

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


async def _subscribe(
    target: "Target", as_json: bool, count: int | None, subscriber: int | None
) -> None:
    from headwater.client import connect

    if subscriber is not None and not REGISTRY[target.scheme].durable_subscriptions:
        others = _either((each.name for each in _DURABLE), "and")
        raise HeadwaterError(f"{target.scheme} has no durable subscriptions; {others} has")
    async with connect(target, _configuration(target)) as client:
        if subscriber is None:
            await client.subscribe(target.topic)
        else:
            await client.subscribe_as(subscriber, target.topic)
        async for message in client:
            print(_as_json(message) if as_json else _as_text(message), flush=True)
            if count is not None:
                count -= 1
                if not count:
                    return


def _target(url: str, files: tuple[str, str, str], subscribing: bool = False) -> "Target":
    """What a URL says. It names a topic, unless the protocol can subscribe without one."""
    from headwater.client import Target

    target = Target.parse(url)
    given = dict(zip(("ca", "certificate", "key"), files, strict=True))
    if any(files) and not target.secure:
        raise HeadwaterError(
            f"--ca, --cert and --key are for TLS: write {target.scheme}s:// for that"
        )
    trust = replace(target.trust, **{name: file for name, file in given.items() if file})
    target = replace(target, trust=trust)
    may_be_nameless = subscribing and REGISTRY[target.scheme].nameless_subscriptions
    if not target.topic and not may_be_nameless:
        raise HeadwaterError(f"the URL names no topic: {url}")
    return target


def _configuration(target: "Target") -> "Config | None":
    """Read only for those who may need it: where there is a mistake in it, others still work."""
    if REGISTRY[target.scheme].configures_clients:
        return load_config().config
    return None


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
