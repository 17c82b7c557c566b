"""`headwater pipeline replay`: what was there once, published again."""

import secrets
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import progress_bar
from headwater.cli.pipeline import ProjectOption, ServersOption, broker_of, load
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.pipeline.repair.replay import Replay, ReplayRequest, ReplayResult

SourceOption = Annotated[
    str, typer.Option("--from", metavar="log|TABLE", help="What to publish: the log or a table.")
]
TopicOption = Annotated[
    str | None, typer.Option(metavar="PCRE", help="Only topics that match as a whole.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN", help="From this offset (42), time (2030-01-01T10:00Z) or age (2h) on."
    ),
]
UntilOption = Annotated[str | None, typer.Option(metavar="WHEN", help="What is before this one.")]
WhereOption = Annotated[
    str | None,
    typer.Option(metavar="CONDITION", help='Only rows for which this is so: "price > 20".'),
]
ToOption = Annotated[
    str, typer.Option(metavar="TOPIC", help="Where to; {topic} stands for the topic it had.")
]
PaceOption = Annotated[
    str, typer.Option(metavar="PACE", help="original, max, 10x (ten times as fast) or 500/s.")
]
NameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="What to call it, so that it can be resumed.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the replay of this name.")]


def replay(
    source: SourceOption = "log",
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    where: WhereOption = None,
    to: ToOption = "replay/{topic}",
    pace: PaceOption = "max",
    name: NameOption = None,
    resume: ResumeOption = False,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Publish a part of the log, or rows of a table, into topics again, exactly once.

    The end is fixed at the start. Killed at any moment, --resume goes on without losing or
    repeating a message. Rows of bronze, quarantine and late are the messages they were; rows of
    other tables are published as JSON.
    """
    loaded = load(project, servers)
    from headwater.pipeline.repair.replay import Replay, ReplayRequest

    if resume and name is None:
        raise HeadwaterError("say which one to resume with --name NAME")
    made = Replay(name or f"replay-{secrets.token_hex(4)}", loaded.storage, broker_of(loaded))
    request = None if resume else ReplayRequest(source, topic, since, until, where, to)
    result = _published(made, request, pace)
    rate = result.rows / max(result.seconds, 1e-3)
    print(f"{result.name}: {result.rows} messages in {result.seconds:.1f} s ({rate:,.0f}/s)")


def _published(made: "Replay", request: "ReplayRequest | None", pace: str) -> "ReplayResult":
    """Begin it, if there is a request, and run it to its end."""
    from headwater.pipeline.repair.replay import ReplayPace

    parsed = ReplayPace.parse(pace)
    if request is not None:
        made.begin(request)
    try:
        with progress_bar("publishing") as progress:
            return made.run(parsed, progress)
    except KeyboardInterrupt:
        print(f"to go on: headwater pipeline replay --name {made.name} --resume --pace {pace}")
        raise
