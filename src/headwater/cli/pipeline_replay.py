"""`headwater pipeline replay`: publish part of the log, or rows of a table, again."""

import secrets
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.common import ProjectOption, ServersOption
from headwater.cli.output import progress_bar
from headwater.cli.pipeline import broker_of, load
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.pipeline.repair.replay import Replay, ReplayRequest, ReplayResult

SourceOption = Annotated[
    str,
    typer.Option("--from", metavar="log|TABLE", help="Publish from the log or a table."),
]
TopicOption = Annotated[
    str | None,
    typer.Option(metavar="PCRE", help="Only topics that the whole pattern matches."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN", help="Begin at this offset (42), time (2030-01-01T10:00Z) or age (2h)."
    ),
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Stop before this offset, time or age.")
]
WhereOption = Annotated[
    str | None,
    typer.Option(metavar="CONDITION", help='Only rows with this condition, such as "price > 20".'),
]
ToOption = Annotated[
    str, typer.Option(metavar="TOPIC", help="Target topic; {topic} stands for the original topic.")
]
PaceOption = Annotated[
    str,
    typer.Option(metavar="PACE", help="original, max, 10x (ten times the original) or 500/s."),
]
NameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the replay, for --resume.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Resume the replay of this --name.")]


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
    """Publish part of the log, or rows of a table, again.

    Each message is published exactly once, also when a killed replay is continued with --resume.
    The end is fixed at the start. Rows of bronze, quarantine and late are published as the original
    messages; rows of other tables as JSON.
    """
    loaded = load(project, servers)
    from headwater.pipeline.repair.replay import Replay, ReplayRequest

    if resume and name is None:
        raise HeadwaterError("--resume needs --name NAME")
    made = Replay(name or f"replay-{secrets.token_hex(4)}", loaded.storage, broker_of(loaded))
    request = None if resume else ReplayRequest(source, topic, since, until, where, to)
    result = _published(made, request, pace)
    rate = result.rows / max(result.seconds, 1e-3)
    print(f"{result.name}: {result.rows} messages in {result.seconds:.1f} s ({rate:,.0f}/s)")


def _published(made: "Replay", request: "ReplayRequest | None", pace: str) -> "ReplayResult":
    """Begin the replay if there is a request, otherwise resume it; run it to its end."""
    from headwater.pipeline.repair.replay import ReplayPace

    parsed = ReplayPace.parse(pace)
    if request is not None:
        made.begin(request)
    try:
        with progress_bar("publishing") as progress:
            return made.run(parsed, progress)
    except KeyboardInterrupt:
        print(f"to resume: headwater pipeline replay --name {made.name} --resume --pace {pace}")
        raise
