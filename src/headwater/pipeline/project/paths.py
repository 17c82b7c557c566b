"""Names that are the same in every project and in every table."""

#: The columns with the offset of the record that a row came from.
OFFSETS = ("offset", "_offset")
#: The directory of a table for files that are not committed yet.
STAGING = "_staging"
#: The name under which a redrive is noted in the table `quarantine`, as if it were a query.
REDRIVE = "redrive"
#: The table of records that left quarantine for their topic.
REDRIVEN = "redriven"
#: The table that says which offsets each batch has brought into which table.
AUDIT = "audit"
#: The directory of the queries' checkpoints, beside the tables; and the query of all contracts.
CHECKPOINTS = "checkpoints"
CONTRACTS_QUERY = "contracts"
