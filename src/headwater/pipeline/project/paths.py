"""Names that are the same in every project and in every table."""

#: The columns that say which part of the log a row came from.
OFFSETS = ("offset", "_offset")
#: Where files are before they are part of the table.
STAGING = "_staging"
#: What a redrive notes in the table `quarantine`, as if it were a query.
REDRIVE = "redrive"
#: The table of records that left quarantine for their topic.
REDRIVEN = "redriven"
#: The table that says which offsets each batch has brought into which table.
AUDIT = "audit"
#: Where queries note how far they are, beside the tables; and the query of all contracts.
CHECKPOINTS = "checkpoints"
CONTRACTS_QUERY = "contracts"
