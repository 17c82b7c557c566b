"""The line of every table and key in a TOML document, which tomllib does not tell."""

import re
import tomllib

#: Names of tables and keys; a number is the place in an array.
KeyPath = tuple[str | int, ...]


class Lines:
    """What it found, by path: `Lines(text).found["log", "sync"]`.

    It reads only documents that tomllib has accepted, so it checks nothing.
    """

    _BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
    _BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
    _STRING = re.compile(
        # The content of a multi-line string may end in one or two quotes of its own.
        r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
        r"|'''.*?'''(?:'{0,2})"
        r'|"(?:\\.|[^"\\])*"'
        r"|'[^']*'",
        re.DOTALL,
    )
    _SCALAR = re.compile(r"[^,\]}\n#]*")

    def __init__(self, text: str) -> None:
        self.found: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._array_lengths: dict[KeyPath, int] = {}
        self._document()

    def _document(self) -> None:
        table: KeyPath = ()
        while self._peek():
            if self._take("[["):
                table = self._array_header(self._key())
                self._take("]]")
            elif self._take("["):
                table = self._resolve(self._key())
                self._note(table)
                self._take("]")
            else:
                self._pair(table)

    def _array_header(self, key: KeyPath) -> KeyPath:
        array = (*self._resolve(key[:-1]), key[-1])
        index = self._array_lengths.get(array, 0)
        self._array_lengths[array] = index + 1
        self._note((*array, index))
        return (*array, index)

    def _resolve(self, key: KeyPath) -> KeyPath:
        """The path of a table: a name that stands for an array means its last element."""
        path: KeyPath = ()
        for part in key:
            path = (*path, part)
            if path in self._array_lengths:
                path = (*path, self._array_lengths[path] - 1)
        return path

    def _pair(self, table: KeyPath) -> None:
        path = (*table, *self._key())
        self._note(path)
        self._take("=")
        self._value(path)

    def _key(self) -> KeyPath:
        parts: list[str] = []
        while True:
            if self._peek() in "\"'":
                quoted = self._match(self._STRING)
                parts.append(tomllib.loads(f"key = {quoted}")["key"])
            else:
                parts.append(self._match(self._BARE_KEY))
            if not self._take("."):
                return tuple(parts)

    def _value(self, path: KeyPath) -> None:
        if self._take("["):
            index = 0
            while not self._take("]"):
                self._note((*path, index))
                self._value((*path, index))
                self._take(",")
                index += 1
        elif self._take("{"):
            while not self._take("}"):
                self._pair(path)
                self._take(",")
        else:
            self._match(self._STRING if self._peek() in "\"'" else self._SCALAR)

    def _note(self, path: KeyPath) -> None:
        """The first mention of a path counts, and mentions the tables that it is in."""
        line = self._text.count("\n", 0, self._at) + 1
        for length in range(1, len(path) + 1):
            self.found.setdefault(path[:length], line)

    def _peek(self) -> str:
        self._match(self._BLANK)
        return self._text[self._at : self._at + 1]

    def _take(self, token: str) -> bool:
        self._match(self._BLANK)
        taken = self._text.startswith(token, self._at)
        self._at += len(token) * taken
        return taken

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None, f"tomllib accepts what is not TOML at character {self._at}"
        self._at = match.end()
        return match[0]
