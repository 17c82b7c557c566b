"""What the API answers and takes. All times are microseconds since 1970, sizes are bytes."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")

#: Offsets and times are 64-bit integers.
MOST = 2**63 - 1
Offset = Annotated[int, Field(ge=0, le=MOST)]
Micros = Annotated[int, Field(description="microseconds since 1970")]
RoleName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        description="client, viewer, reader, operator, or one of your own",
    ),
]


class Model(BaseModel):
    model_config = ConfigDict(populate_by_name=True)


class Asked(Model):
    """What a client sends: nothing unknown."""

    model_config = ConfigDict(extra="forbid")


class Page(Model, Generic[Item]):
    items: list[Item]
    total: int
    next: str | None = Field(description="the cursor of the next page")


class Problem(Model):
    code: str
    message: str


class Failure(Model):
    error: Problem


class Flow(Model):
    messages: int
    bytes: int
    messages_per_second: float
    bytes_per_second: float


class ProtocolFigures(Model):
    name: str
    connections: int
    accepted: int = Field(description="connections since the broker started")
    into: Flow = Field(alias="in")
    out: Flow


class LogFigures(Model):
    start: int
    watermark: int = Field(description="everything before it is durable")
    end: int
    timestamp: Micros
    bytes: int
    segments: int
    sync_ms_p50: float
    sync_ms_p99: float
    refusal: str | None = Field(description="why nothing can be published now, if so")


class SlowdownFigures(Model):
    """Why connections are not read from for a while."""

    reason: str
    meaning: str
    times: int
    seconds: float


class SlowdownOfAll(SlowdownFigures):
    connections: int = Field(description="how many are slowed now")


class SlowdownOfOne(SlowdownFigures):
    share: float = Field(description="the part of the last second, from 0 to 1")
    since: Micros | None = Field(description="null: not now")


class LoopFigures(Model):
    """What the broker's event loop does with its time."""

    busy: float = Field(description="the part of a processor that it uses, from 0 to 1")
    chores: float = Field(description="the part of its time that goes into work in the background")
    turns_per_second: float
    writes_per_second: float
    turn_ms_p50: float = Field(description="over the last ten seconds, and so is p99")
    turn_ms_p99: float
    lag_ms_p99: float = Field(description="how late it comes to what is due, in the last minute")
    lag_ms_longest: float
    slowed: list[SlowdownOfAll]


class ActiveAlert(Model):
    severity: Literal["warning", "critical"]
    kind: Literal[
        "log",
        "state",
        "disk",
        "gap",
        "reads",
        "slow",
        "dead",
        "backlog",
        "dropped",
        "lag",
        "greedy",
        "tls",
    ]
    message: str
    since: Micros = Field(description="when it was first seen")


class ProtocolHistory(Model):
    into: list[float] = Field(alias="in")
    out: list[float]


class History(Model):
    step_seconds: int
    times: list[int]
    into: list[float] = Field(alias="in", description="messages per second")
    out: list[float]
    bytes_in: list[float]
    bytes_out: list[float]
    protocols: dict[str, ProtocolHistory]


class Overview(Model):
    version: str
    started: Micros
    uptime_seconds: float
    log: LogFigures
    loop: LoopFigures
    into: Flow = Field(alias="in")
    out: Flow
    protocols: list[ProtocolFigures]
    connections: int
    subscriptions: int
    topics: int
    queues: int
    dead_letters: int
    alerts: list[ActiveAlert]
    history: History


class TopicFigures(Model):
    topic: str
    count: int
    bytes_estimate: int
    messages_per_second: float
    first: Micros | None
    last: Micros
    subscribers: int | None = Field(description="null: not known this time")


class StoredMessage(Model):
    offset: int
    timestamp: Micros
    topic: str
    protocol: str
    publisher: str
    headers: dict[str, str]
    size: int
    text: str | None = Field(description="the payload, if it is UTF-8")
    base64: str | None = Field(description="the payload, if it is not")
    json_: bool = Field(alias="json", description="the text is JSON")
    truncated: bool


class Messages(Model):
    items: list[StoredMessage]
    older: int | None = Field(description="`before` for what is older")
    newer: int | None = Field(description="`from` for what is newer")
    partial: bool = Field(description="the log was not looked through to the end; go on")


class NewMessage(Asked):
    """Either text or base64."""

    text: str | None = None
    base64: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, max_length=64)


class Again(Asked):
    topic: Annotated[str, Field(min_length=1, max_length=65535)] | None = None


class Published(Model):
    offset: int


class Sent(Model):
    messages: int
    bytes: int
    bytes_per_second: float


class ConnectionFigures(Model):
    id: int
    protocol: str
    address: str
    client: str = Field(description="the client's software, where it tells")
    name: str = Field(description="what the client calls itself")
    since: Micros
    subscriptions: int
    into: Sent = Field(alias="in")
    out: Sent
    lag: int = Field(description="offsets behind the end of the log")
    behind: bool
    paused: bool = Field(description="it is not read from now")
    share: float = Field(description="the part of the loop in the last second, from 0 to 1")
    loop_seconds: float = Field(description="what it has taken of the loop since it came")
    slowed: list[SlowdownOfOne] = Field(description="the reasons that there were")
    secure: bool


class SubscriptionFigures(Model):
    connection: int
    protocol: str
    client: str
    key: str
    filter: str
    durable: str | None
    position: int
    lag: int


class QueueFigures(Model):
    name: str
    protocol: str
    consumers: int
    waiting: int
    waiting_is_partial: bool
    in_flight: int
    returned: int
    dead: int
    position: int
    oldest: Micros | None
    backlog_seconds: float | None = Field(
        description="how long a message waits while nobody consumes the queue; null: no limit"
    )
    dropped: int = Field(description="messages that waited longer, since the broker started")


class BindingNote(Model):
    binding: str
    near: str | None = Field(description="a topic that would match with . and / exchanged")
    note: str


class QueueDetail(QueueFigures):
    bindings: list[str]
    unmatched_bindings: list[BindingNote]
    prefetch: int | None
    ack_seconds: float | None
    max_deliveries: int | None
    dead_topic: str


class DeadLetter(Model):
    offset: int
    topic: str
    reason: str
    deliveries: int
    size: int
    timestamp: Micros
    text: str | None = Field(description="null for viewers, or if it is not UTF-8")


class RedriveRequest(Asked):
    limit: Annotated[int, Field(ge=1, le=MOST)] | None = None


class Redriven(Model):
    redriven: int


class Purged(Model):
    purged: int


class SegmentFigures(Model):
    base: int
    end: int
    bytes: int
    last_timestamp: Micros
    sealed: bool


class Retention(Model):
    sync: str
    segment_bytes: int
    retention_bytes: int | None
    retention_age_seconds: float | None


class LogDetail(LogFigures):
    pieces: list[SegmentFigures] = Field(description="the newest segments, at most 500")
    retention: Retention


class Pipeline(Model):
    pipeline: str
    reported: Micros
    stale: bool
    state: dict[str, Any]


class UserAccount(Model):
    name: str
    role: RoleName
    created: Micros


class NewUser(Asked):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    role: RoleName = "viewer"
    password: Annotated[str, Field(min_length=8, max_length=1024)]


class UserChange(Asked):
    role: RoleName | None = None
    password: Annotated[str, Field(min_length=8, max_length=1024)] | None = None


class NewToken(Model):
    name: str
    token: str


class AccessRule(Asked):
    who: Annotated[
        str, Field(max_length=100, description="user:NAME, app:NAME, role:NAME or anonymous")
    ]
    may: Annotated[list[str], Field(min_length=1, max_length=4)]
    topics: Annotated[str, Field(min_length=1, max_length=65535)]


class AccessExplanation(Model):
    allowed: bool
    why: str


class Login(Asked):
    name: Annotated[str, Field(max_length=256)]
    password: Annotated[str, Field(max_length=1024)]


class Me(Model):
    name: str
    role: RoleName
    local: bool = Field(description="nobody has to log in here")


class Success(Model):
    done: bool = True


class TailRows(Model):
    """What the event `rows` has."""

    items: list[StoredMessage]
    skipped: int
    matched: int
    rate: float
