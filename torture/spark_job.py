"""A Spark query that copies topics to a topic. torture/spark.py kills it and starts it again."""

import sys
import time

from headwater.spark import session


def main() -> None:
    servers, directory, mode = sys.argv[1:4]
    # A task may be tried again, so that a worker that is killed does not end the query.
    spark = session("torture", master="local[2,8]", directory=f"{directory}/spark")
    records = (
        spark.readStream.format("headwater")
        .option("servers", servers)
        .option("subscribePattern", "in/.*")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20_000)
        .option("fetch.numRetries", 100)
        .option("fetch.retryIntervalMs", 100)
        .load()
    )
    writer = (
        records.select("value")
        .writeStream.format("headwater")
        .option("servers", servers)
        .option("topic", "out")
        .option("fetch.numRetries", 100)
        .option("fetch.retryIntervalMs", 100)
        .option("checkpointLocation", f"{directory}/checkpoint")
    )
    if mode == "once":
        writer.trigger(availableNow=True).start().awaitTermination()
        print("done", flush=True)
        return
    query = writer.start()
    while query.lastProgress is None:
        time.sleep(0.05)
    print("ready", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
