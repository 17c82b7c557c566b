"""The program that matches patterns of which nobody knows how long they take: see matcher.py.

reads     [pattern, topic]    one JSON array per line
writes    0|1 seconds         one line each: whether it matches, and what that has cost
"""

import json
import sys
from functools import lru_cache
from time import process_time

from headwater import pcre

compiled = lru_cache(maxsize=4096)(pcre.compiled)


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        pattern, topic = json.loads(line)
        began = process_time()  # not the time of the clock: the machine may be busy otherwise
        found = compiled(pattern)(topic)
        print(int(found), process_time() - began, flush=True)


if __name__ == "__main__":
    main()
