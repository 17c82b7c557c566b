"""What must not be, and the input that shows it."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("fuzz-findings")


@dataclass(frozen=True, slots=True)
class Finding:
    target: str
    why: str
    data: bytes

    @property
    def gist(self) -> str:
        """The same for two inputs that find the same fault: where the traceback ends, or the
        sentence without its numbers."""
        frames = re.findall(r'File "([^"]+)", line (\d+)', self.why)
        last = self.why.strip().splitlines()[-1] if self.why.strip() else ""
        return f"{frames[-1] if frames else ''} {re.sub(r'[0-9]+', '#', last)[:80]}"

    def save(self) -> Path:
        """Keep the input, with what it has found beside it."""
        FOLDER.mkdir(exist_ok=True)
        name = f"{self.target}-{hashlib.sha256(self.data + self.gist.encode()).hexdigest()[:12]}"
        file = FOLDER / name
        file.write_bytes(self.data)
        file.with_suffix(".txt").write_text(f"{self.why}\n{self.data[:2000]!r}\n")
        return file
