"""Contracts: which records become rows of silver, and what happens to the others.

kinds.py         the types of fields; values.py: times and dates in texts
model.py         what a contract says, and every key that it may have
reading.py       contracts from YAML, with errors that name the line
document.py      JSON, strictly
checks.py        the verdict over one record: the definition
fits.py          which of many records certainly fit, quickly; columns.py: their columns
patterns.py      regular expressions for texts
judge.py         the verdict over many records, as rows of tables
evolution.py     columns that nobody declared
repeats.py       keys that were there before
source.py        the log, judged where it is read
tables.py        silver, quarantine and late, fed by one query
inference.py     a draft of a contract from what is in a topic
"""

from collections.abc import Mapping

from headwater.pipeline.contracts.checks import Record, Verdict, key_of, verdict, verdict_of
from headwater.pipeline.contracts.model import Contract, contract_of
from headwater.pipeline.contracts.reading import load

__all__ = [
    "Contract",
    "Record",
    "Verdict",
    "contract_of",
    "define",
    "key_of",
    "load",
    "verdict",
    "verdict_of",
]


def define(**properties: Mapping[str, str]) -> None:
    """Register the tables of the project's contracts, some of them with properties:
    `define(silver_orders={"headwater.retention": "90d"})`."""
    from headwater.pipeline.contracts import tables  # tasks import this package, but not all of it

    tables.define(properties)
