"""An operator at work: a process that adds users, tokens, rules and apps when it is told to.

user NAME | token NAME | rule NAME | app NAME

A line each; answered by "done" when it is on the disk.
"""

import sys
from pathlib import Path

from headwater.identity.apps import FILE as APPS
from headwater.identity.apps import Apps
from headwater.identity.rules import FILE as RULES
from headwater.identity.rules import Rules
from headwater.identity.users import FILE as USERS
from headwater.identity.users import Users


def main(data: Path) -> None:
    users, rules, apps = Users(data / USERS), Rules(data / RULES), Apps(data / APPS)
    for line in sys.stdin:
        what, name = line.split()
        if what == "user":
            users.add(name, "reader")
        elif what == "token":
            users.add_token(name)
        elif what == "rule":
            rules.allow(f"user:{name}", ["publish"], f"{name}/*")
        else:
            apps.add(name)
        print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
