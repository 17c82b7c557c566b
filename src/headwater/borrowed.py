"""Checks of what Headwater takes from other packages without their promise to keep it.

Each such thing is used in one module only, which says what it takes and why there is no public way:

    pcre.py                               patterns as PCRE means them          decision 21
    protocols/websocket/masking.py        masking in C                         decision 11
    console/connections.py                states of HTTP connections           decision 39
    pipeline/definitions/spark_names.py   names of a project in Spark's readers   decision 22
    pipeline/definitions/declarative.py   what Spark's decorators register     decision 23
    pipeline/definitions/connect.py       a pipeline on a Spark Connect server decision 23
    spark/jvm.py                          Spark's Java process                 decision 24
    spark/arrow_schemas.py                schemas of Spark as Arrow's          decision 24
    spark/daemon.py                       words of Spark's Python processes    decision 25

Before such a thing is used it is compared with what Headwater knows of it. After an upgrade that
changes it, a user gets a sentence with the version to install, and no traceback or wrong result.
`tests/test_layers.py` holds that no other module does the like.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headwater.errors import HeadwaterError


@dataclass(frozen=True, slots=True)
class Dependency:
    """A package that something is borrowed from."""

    name: str  # as people write it
    package: str  # as pip and `import` know it
    version: str  # the one that Headwater is written for

    def changed(self, why: str) -> HeadwaterError:
        from importlib import metadata  # takes a while, and hardly anyone needs it

        installed = metadata.version(self.package)
        return HeadwaterError(
            f"{self.name} {installed} is not as Headwater knows it: {why}; "
            f"install {self.package}=={self.version}"
        )

    @contextmanager
    def imports(self) -> Iterator[None]:
        """Imports that fail because the package has changed, not because it is missing."""
        try:
            yield
        except ImportError as error:
            package, _, module = (error.name or "").partition(".")
            if package != self.package or (isinstance(error, ModuleNotFoundError) and not module):
                raise
            raise self.changed(re.sub(r" \(.*\)$", "", str(error))) from None

    def check_attributes(self, what: str, thing: object, *names: str) -> None:
        for name in names:
            if not hasattr(thing, name):
                raise self.changed(f"{what} has no {name}")

    def check_parameters(self, what: str, function: Callable[..., Any], *names: str) -> None:
        """The function has these parameters, and needs no others."""
        given = inspect.signature(function).parameters
        for name in names:
            if name not in given:
                raise self.changed(f"{what} has no parameter {name}")
        for name, parameter in given.items():
            variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if name not in names and parameter.default is parameter.empty and not variable:
                raise self.changed(f"{what} needs a parameter {name}")


PCRE2 = Dependency("pcre2", "pcre2", "0.7.1")
PYSPARK = Dependency("PySpark", "pyspark", "4.3.0")
UVICORN = Dependency("uvicorn", "uvicorn", "0.54.0")
WEBSOCKETS = Dependency("websockets", "websockets", "17.4")
