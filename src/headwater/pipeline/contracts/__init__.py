"""Contracts: which records become rows of silver, and what happens to the others.

kinds.py         the types of fields; values.py: times and dates in texts
model.py         what a contract says, and every key that it may have
reading.py       contracts from YAML, with errors that name the line
document.py      JSON, strictly
checks.py        the verdict over one record: the definition
fields.py        one field as Spark expressions
expressions.py   the same verdict over millions of records
evolution.py     columns that nobody declared
tables.py        silver, quarantine and late, fed by one query
inference.py     a draft of a contract from what is in a topic
"""

from headwater.pipeline.contracts.checks import Record, Verdict, key_of, verdict, verdict_of
from headwater.pipeline.contracts.model import Contract, contract_of
from headwater.pipeline.contracts.reading import load
from headwater.pipeline.contracts.tables import define

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
