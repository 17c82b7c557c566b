"""What is checked of things that other packages do not promise to keep."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from headwater.borrowed import PCRE2, PYSPARK, UVICORN, WEBSOCKETS, Dependency
from headwater.errors import HeadwaterError

ROOT = Path(__file__).parent.parent


def sample(name: str, size: int = 0, *more: str, **rest: str) -> None:
    """For checks to look at."""


def test_the_error_says_what_has_changed_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "4.4.0")
    assert str(PYSPARK.changed("Flow has no parameter func")) == (
        "PySpark 4.4.0 is not as Headwater knows it: Flow has no parameter func; "
        "install pyspark==4.3.0"
    )


def test_parameters_that_are_known_or_have_a_default_are_fine() -> None:
    PCRE2.check_parameters("sample", sample, "name")
    PCRE2.check_parameters("sample", sample, "name", "size")


def test_a_parameter_that_is_gone_is_named() -> None:
    with pytest.raises(HeadwaterError, match=r"sample has no parameter text; install pcre2=="):
        PCRE2.check_parameters("sample", sample, "text")


def test_a_parameter_that_is_new_and_needed_is_named() -> None:
    with pytest.raises(HeadwaterError, match=r"sample needs a parameter name; install pcre2=="):
        PCRE2.check_parameters("sample", sample, "size")


def test_an_attribute_that_is_gone_is_named() -> None:
    with pytest.raises(HeadwaterError, match=r"pcre2 has no such_thing; install pcre2=="):
        PCRE2.check_attributes("pcre2", object(), "such_thing")


def test_an_import_that_fails_is_a_sentence() -> None:
    with (
        pytest.raises(HeadwaterError, match=r"cannot import name 'Nothing' from 'pcre2'; install"),
        PCRE2.imports(),
    ):
        from pcre2 import Nothing  # noqa: F401
    with (
        pytest.raises(HeadwaterError, match=r"No module named 'pcre2.nothing'; install"),
        PCRE2.imports(),
    ):
        import pcre2.nothing  # noqa: F401


def test_a_package_that_is_not_installed_stays_an_import_error() -> None:
    """Its absence has a sentence elsewhere."""
    absent = Dependency("Absent", "absent_package", "1.0")
    with pytest.raises(ModuleNotFoundError), absent.imports():
        import absent_package  # type: ignore[import-not-found] # noqa: F401


@pytest.mark.parametrize(
    "dependency", [PCRE2, PYSPARK, UVICORN, WEBSOCKETS], ids=lambda each: each.package
)
def test_the_version_to_install_is_the_pinned_one(dependency: Dependency) -> None:
    pin = f"{dependency.package}=={dependency.version} "
    assert pin in (ROOT / "requirements" / "dev.lock").read_text()


def test_spark_is_pinned_to_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = f"pyspark[pipelines]=={PYSPARK.version}"
    assert wanted in project["optional-dependencies"]["spark"]
