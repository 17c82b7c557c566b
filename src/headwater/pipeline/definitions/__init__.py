"""Definition files of a project become a graph, and names in them become data frames.

A project's definitions are files of Spark Declarative Pipelines: Python with the decorators of
`pyspark.pipelines`, or SQL. In reading order:

    graph.py        runs the files. Their decorators call a registry, which makes a node of each
                    table, view and sink, with the flows that fill it. Nothing is read yet.
    sql.py          cuts a file of SQL into statements, each of which is registered like a decorator
    names.py        evaluates a flow when its query starts or its view is computed: calls its
                    function and says which tables that has read. A name of the project means its
                    table on disk, or an empty table with the columns of its definition; a temporary
                    view is evaluated for whoever reads it; any other name is Spark's.
    spark_names.py  lets `spark.table`, `spark.readStream` and `spark.sql` ask names.py meanwhile
    declarative.py  the classes behind the decorators
    connect.py      the same files on a Spark Connect server, which resolves the names itself

The last three borrow from PySpark what it does not promise to keep; nothing else here does.
"""
