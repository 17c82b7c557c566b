"""What a campaign is to do and what came of it, as one process tells the other."""

import json
from dataclasses import asdict, dataclass, field

from fuzz.findings import Finding


@dataclass(frozen=True, slots=True)
class Plan:
    """Both bounds hold; an end by time is only for looking around."""

    target: str
    inputs: int
    seconds: float = 1e9
    seed: int = 1
    #: Only these, and none made from them.
    only: tuple[bytes, ...] = ()
    #: Keep few inputs that are enough in the repository.
    keep: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"only": [each.hex() for each in self.only]})

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        content = json.loads(text)
        return cls(**content | {"only": tuple(map(bytes.fromhex, content["only"]))})


@dataclass(slots=True)
class Outcome:
    target: str
    inputs: int = 0
    seconds: float = 0.0
    corpus: int = 0
    #: Branches.
    taken: int = 0
    slowest_ms: float = 0.0
    #: Memory behind the first part of the run, and at its end.
    first_mib: float = 0.0
    last_mib: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.inputs / self.seconds if self.seconds else 0.0

    def to_json(self) -> str:
        content = asdict(self)
        for finding in content["findings"]:
            finding["data"] = finding["data"].hex()
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        content = json.loads(text)
        content["findings"] = [
            Finding(each["target"], each["why"], bytes.fromhex(each["data"]))
            for each in content["findings"]
        ]
        return cls(**content)
