"""Contracts: records that fit one become typed rows of silver; the others are kept apart.

    model.py       a contract and its fields, and every key that the YAML may have
    kinds.py       the types of fields; values.py: times and dates in texts
    reading.py     contracts from YAML, with errors that name the line
    checks.py      the verdict over one record: the definition of every rule
    document.py    strict JSON; patterns.py: regular expressions
    fits.py        finds records that certainly fit, many at once; columns.py: their columns
    judge.py       the verdict over many records, as rows of tables
    evolution.py   columns for fields that no contract declares
    repeats.py     finds records with the key of an earlier record
    source.py      sources of Spark that judge the log in the tasks that read it
    tables.py      silver, quarantine and late, filled by one query
    inference.py   drafts a contract from the messages of a topic

Rules: checks.py decides; everything quicker than it has to agree with it. Nothing that a record
contains stops a query. Tasks import this package, so it imports little by itself.
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
    from headwater.pipeline.contracts import tables  # not needed in tasks

    tables.define(properties)
