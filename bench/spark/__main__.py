"""`make bench-spark`, or `python -m bench.spark`: measure Spark on the log."""

import argparse
import shlex
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from pyspark.errors import PySparkException
from rich.console import Console

from bench import report
from bench.__main__ import RESULTS, work_directory
from bench.brokers import ServerFailed, Yard
from bench.crew import LoadFailed
from bench.figures import Figures, Row
from bench.spark import measures
from bench.spark.measures import Measure
from bench.spark.scale import FULL, QUICK, Scale
from bench.spark.stand import Stand
from bench.spark.targets import targets
from bench.targets import Book


def parse(argv: list[str]) -> argparse.Namespace:
    names = [measure.name for measure in measures.ALL]
    parser = argparse.ArgumentParser(prog="bench-spark", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a short run, to see whether something is badly off")
    add("--only", metavar="NAME", action="append", choices=names, help=", ".join(names))
    add("--rows", type=int, help="of the source and the sink (5000000)")
    add("--rounds", type=int, help="of source, sink and beside (3)")
    add("--cores", type=int, default=2, help="that Spark may use (2)")
    add("--work", type=Path, metavar="DIR", help="where all is stored; not in memory (results/)")
    add("--json", type=Path, metavar="FILE", help="write all figures to a file, too")
    return parser.parse_args(argv)


def chosen_scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    named = {"rows": options.rows, "sink_rows": options.rows, "rounds": options.rounds}
    return replace(scale, **{name: value for name, value in named.items() if value is not None})


def run(wanted: Iterable[Measure], stand: Stand, say: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    for measure in wanted:
        say(f"{measure.title} ...")
        samples: dict[tuple[str, str], list[Figures]] = defaultdict(list)
        try:
            for case, who, figures in measure.run(stand):
                samples[case, who].append(figures)
        except (LoadFailed, ServerFailed, OSError, PySparkException) as error:
            sentence = str(error).partition("\n")[0]
            say(f"  failed: {sentence}")
            rows.append(Row(measure.name, "", "", (), (sentence,)))
        rows += [Row(measure.name, *key, tuple(found)) for key, found in samples.items()]
    return rows


def main(argv: list[str]) -> int:
    from headwater.spark import java, session

    options = parse(argv)
    console = Console() if sys.stdout.isatty() else Console(width=180)
    # SIGTERM leaves through the same `finally` as Ctrl-C: nothing stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    scale = chosen_scale(options)
    wanted = [each for each in measures.ALL if not options.only or each.name in options.only]
    with work_directory(options.work) as work:
        spark = session("bench", f"local[{options.cores}]", work / "spark", driver_memory="2g")
        machine = report.machine(work) | {"spark": f"{spark.version}, Java {java.chosen()}"}
        try:
            rows = run(wanted, Stand(Yard(work), work, spark, scale), console.print)
        finally:
            spark.stop()
    book = Book(rows)
    verdicts = tuple(target.verdict(book) for target in targets(scale))
    command = f'make bench-spark ARGS="{shlex.join(argv)}"' if argv else "make bench-spark"
    long_enough = scale.rounds >= FULL.rounds and scale.rows >= FULL.rows
    result = report.Report(tuple(rows), verdicts, machine, command, quotable=long_enough)
    report.finish(result, console, RESULTS, options.json)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
