"""The words of permissions: what can be allowed, and to whom."""

PUBLISH = "publish"
SUBSCRIBE = "subscribe"
HISTORY = "history"
QUEUES = "queues"

#: All that can be allowed, each with its meaning for a person.
ACTIONS = {
    PUBLISH: "publish messages",
    SUBSCRIBE: "get messages as they come",
    HISTORY: "read messages that are in the log",
    QUEUES: "make queues, and consume their messages",
}

#: Each action before a topic, as a sentence has it.
VERBS = {
    PUBLISH: "publish to",
    SUBSCRIBE: "subscribe to",
    HISTORY: "read the history of",
    QUEUES: "consume queues of",
}

#: Clients that did not say who they are, where they need not.
ANONYMOUS = "anonymous"
#: The role of apps that were given no other.
APP_ROLE = "app"
#: The first level of the topics that the broker records in what concerns access.
AUDIT = "$audit"
