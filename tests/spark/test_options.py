"""Options: what they can be, and what a user is told who got one wrong."""

import pickle

import pytest

from headwater.errors import ConfigError
from headwater.spark.options import OPTIONS, Edge, SinkOptions, SourceOptions, parse, table
from headwater.units import Address

TOPIC = {"subscribe": "a"}


def test_the_defaults() -> None:
    options = parse(SourceOptions, TOPIC)
    assert options.servers == (Address("localhost", 8815),)
    assert (options.start, options.end, options.token) == (None, None, None)
    assert options.fail_on_data_loss
    assert not options.headers
    assert not options.tls
    assert options.most_delay == 15 * 60
    assert parse(SinkOptions, {}).topic is None


def test_every_option_can_be_given() -> None:
    source = parse(
        SourceOptions,
        {
            "servers": "one:1, [::1]:2",
            "token": "secret",
            "tls.enabled": "TRUE",
            "tls.caFile": "ca.pem",
            "tls.certFile": "own.pem",
            "tls.keyFile": "own.key",
            "fetch.numRetries": "7",
            "fetch.retryIntervalMs": "50",
            "subscribePattern": "a,b",
            "startingOffsets": '{"offset": 42}',
            "endingOffsets": "latest",
            "startingTimestamp": "1700000000000",
            "endingTimestamp": "1700000000001",
            "maxOffsetsPerTrigger": "100",
            "maxBytesPerTrigger": "64MiB",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
            "minPartitions": "4",
            "failOnDataLoss": "false",
            "includeHeaders": "true",
        },
    )
    assert source.servers == (Address("one", 1), Address("::1", 2))
    assert (source.token, source.tls, str(source.ca_file)) == ("secret", True, "ca.pem")
    assert (str(source.certificate_file), str(source.key_file)) == ("own.pem", "own.key")
    assert (source.retries, source.retry_interval) == (7, 50)
    assert (source.subscribe, source.pattern) == (None, "a,b")
    assert (source.start, source.end) == (42, Edge.LATEST)
    assert (source.start_time, source.end_time) == (1700000000000, 1700000000001)
    assert (source.most_offsets, source.most_bytes) == (100, 64 << 20)
    assert (source.least_offsets, source.most_delay) == (10, 30.0)
    assert source.least_partitions == 4
    assert source.headers
    assert not source.fail_on_data_loss
    sink = parse(SinkOptions, {"topic": "t", "deadLetterTopic": "d", "producer": "p"})
    assert (sink.topic, sink.dead_letter_topic, sink.producer) == ("t", "d", "p")
    assert len(OPTIONS) == 24, "a new option belongs in this test"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Edge.EARLIEST),
        (" Latest ", Edge.LATEST),
        ("0", 0),
        ("123456789012", 123456789012),
        ('{"offset":7}', 7),
        ('{"offset": "earliest"}', Edge.EARLIEST),
    ],
)
def test_positions(text: str, position: object) -> None:
    assert parse(SourceOptions, TOPIC | {"startingOffsets": text}).start == position


def test_the_case_of_names_means_nothing() -> None:
    options = parse(SourceOptions, {"SUBSCRIBE": "a, b", "includeheaders": "true"})
    assert options.subscribe == ("a", "b")
    assert options.headers


def test_options_of_spark_are_left_alone() -> None:
    given = {"path": "x", "checkpointLocation": "y", "queryName": "z", "spark.foo": "1"}
    assert parse(SinkOptions, given) == SinkOptions()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one of the options subscribe (topics, separated by commas) and subscribeP"),
        ({"subscribe": "a", "subscribePattern": "b"}, "exactly one of the options"),
        ({"subscribe": "a,,b"}, 'the option subscribe must be topics, separated by commas, not "a'),
        (TOPIC | {"servers": "localhost"}, "the option servers must be addresses with ports"),
        (TOPIC | {"servers": "localhost:0"}, "the option servers must be addresses with ports"),
        (TOPIC | {"startingOffsets": "erliest"}, 'did you mean "earliest"?'),
        (TOPIC | {"startingOffsets": "-1"}, "an offset such as `42`"),
        (TOPIC | {"startingOffsets": '{"t":{"0":23}}'}, "offsets are of the whole log here"),
        (TOPIC | {"startingOffsets": "{"}, "the option startingOffsets must be"),
        (TOPIC | {"endingOffsets": "earliest"}, "the option endingOffsets must be `latest`"),
        (TOPIC | {"failOnDataLoss": "no"}, 'failOnDataLoss must be `true` or `false`, not "no"'),
        (TOPIC | {"maxOffsetsPerTrigger": "0"}, 'must be a whole number of at least 1, not "0"'),
        (TOPIC | {"maxBytesPerTrigger": "lots"}, "must be a size, such as `64MiB`"),
        (TOPIC | {"maxTriggerDelay": "30"}, "must be a duration with its unit, such as `15m`"),
        (TOPIC | {"minPartitions": "1.5"}, "must be a whole number from 1 to 100000"),
        (
            TOPIC | {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
            "minOffsetsPerTrigger must not be more than maxOffsetsPerTrigger: write at most 5",
        ),
        (TOPIC | {"tls.caFile": "ca.pem"}, "set tls.enabled to true, too"),
        (TOPIC | {"tls.keyFile": "k"}, "tls.keyFile means nothing without TLS"),
        (TOPIC | {"tls.enabled": "true", "tls.keyFile": "k"}, "belong together"),
        (TOPIC | {"maxOffsetPerTrigger": "5"}, 'did you mean "maxOffsetsPerTrigger"?'),
        (TOPIC | {"nonsense": "5"}, 'there is no option "nonsense"'),
        (TOPIC | {"topic": "x"}, "the option topic is one of the sink, not of the source"),
        (TOPIC | {"kafka.bootstrap.servers": "x"}, 'here it is called "servers"'),
        (TOPIC | {"kafka.group.id": "x"}, "leave out what is meant for a Kafka client"),
    ],
)
def test_what_a_user_is_told(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(SourceOptions, given)
    assert words in str(raised.value)


def test_options_that_mean_nothing_in_a_mode() -> None:
    with pytest.raises(ConfigError, match="endingOffsets means nothing in a streaming query"):
        parse(SourceOptions, TOPIC | {"endingOffsets": "5"}).check_mode("streaming")
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger means nothing in batch: leave it"):
        parse(SourceOptions, TOPIC | {"maxOffsetsPerTrigger": "5"}).check_mode("batch")
    with pytest.raises(ConfigError, match="a stream is known by its checkpoint"):
        parse(SinkOptions, {"producer": "p"}).check_mode("streaming")
    with pytest.raises(ConfigError, match="the option subscribe is one of the source"):
        parse(SinkOptions, TOPIC)


def test_a_token_is_never_shown() -> None:
    options = parse(SourceOptions, TOPIC | {"token": "very secret"})
    assert "very secret" not in repr(options)
    with pytest.raises(ConfigError) as raised:
        parse(SourceOptions, TOPIC | {"token": "very secret" * 1000})
    assert "very secret" not in str(raised.value)


def test_options_travel() -> None:
    options = parse(SourceOptions, TOPIC | {"token": "t"})
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_table_has_a_row_for_every_option() -> None:
    lines = table().splitlines()
    assert len(lines) == len(OPTIONS) + 2
    assert all(line.count(" | ") == 4 for line in lines)
    assert lines[2].startswith("| `servers` | addresses with ports")
    assert "| `latest` | source (batch) |" in table()
