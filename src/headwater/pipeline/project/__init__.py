"""A project: a directory with spark-pipeline.yml, definitions, contracts and its storage.

    project.py    reads spark-pipeline.yml
    settings.py   the settings `headwater.*`, as definitions see them in Spark's configuration
    paths.py      names that are the same in every project and in every table
    intents.py    a note on disk of what is about to be done, for the run after a kill
    init.py       makes a new project from templates/

This is the lowest room of the pipeline: it imports no other one, and needs no Spark.
"""
