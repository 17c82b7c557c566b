"""What tests cost: which are costly, what `make test` takes of these, and who runs beside whom.

A costly test has a marker that says why it is costly (COSTLY). `make test` takes all tests without
such a marker, and of the costly ones those that are marked `smoke`: so many that every feature is
touched. `make test-rest` takes the others, `make test-all` everything.

Two workers run the tests. Tests of a group run in one of them, one after the other:

    spark           all that use the shared Spark, which is started once, and all that start a Java
                    of their own. A Spark uses both cores, and gives a Python process ten seconds to
                    start: beside a second one, that is too little now and then
    browser, bench  two browsers at once, or two measurements, would only wait for each other

The largest pieces go first, so that both workers are busy until the end.
"""

import pytest

#: In the order in which they are begun.
COSTLY = ("spark", "spark_process", "torture", "browser", "bench")
#: Seconds: a bound for what hangs. A busy machine takes minutes for what is done in seconds
#: otherwise, and Spark is started within the time of the first test that needs it.
TIMEOUT = 600
#: The fixture of the shared Spark: whoever uses it, directly or not, is costly by that.
SHARED_SPARK = "spark"


def mark(items: list[pytest.Item]) -> None:
    """Add the markers, groups and bounds that follow from what a test uses."""
    for item in items:
        if SHARED_SPARK in getattr(item, "fixturenames", ()):
            item.add_marker(SHARED_SPARK)
        if markers_of(item) & set(COSTLY) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT))
        group = group_of(item)
        if group is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))


def group_of(item: pytest.Item) -> str | None:
    names = markers_of(item)
    if "spark_process" in names:
        return "spark"
    return next((name for name in ("spark", "browser", "bench") if name in names), None)


def markers_of(item: pytest.Item) -> set[str]:
    return {marker.name for marker in item.iter_markers()}


def rank(item: pytest.Item) -> int:
    """Where a test stands in the order of costs."""
    names = markers_of(item)
    return next((place for place, name in enumerate(COSTLY) if name in names), len(COSTLY))
