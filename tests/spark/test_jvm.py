"""What is borrowed from PySpark to reach its Java process. No Spark is started."""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pyspark.sql.utils
import pytest
from pyspark import SparkContext, java_gateway
from pyspark import daemon as pyspark_daemon
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.sql import SparkSession

from headwater.errors import HeadwaterError
from headwater.spark import daemon, jvm

CHANGED = "PySpark has changed: look at headwater/spark/jvm.py and its decision record"


def test_a_session_has_its_java_side() -> None:
    made = inspect.getsource(SparkSession.__init__)
    assert "self._jvm = " in made and "self._jsparkSession = " in made, CHANGED


def test_a_context_has_its_process_and_its_accumulators() -> None:
    assert hasattr(SparkContext, "_gateway"), CHANGED
    assert hasattr(SparkContext, "_active_spark_context"), CHANGED
    assert "gateway.proc = " in inspect.getsource(java_gateway.launch_gateway), CHANGED
    assert "self._accumulatorServer = " in inspect.getsource(SparkContext._do_init), CHANGED
    assert hasattr(AccumulatorTCPServer, "handle_error"), CHANGED


def test_whether_the_session_is_remote_can_be_asked() -> None:
    assert jvm.is_remote() is False


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        (jvm.activate, "SparkSession has no _jvm"),
        (jvm.java_process, "SparkContext has no _gateway"),
        (jvm.silence, "SparkContext has no _accumulatorServer"),
    ],
)
def test_an_attribute_that_is_gone_is_a_sentence(call: Callable[[Any], Any], missing: str) -> None:
    session = SimpleNamespace(sparkContext=SimpleNamespace())
    with pytest.raises(HeadwaterError, match=f"{missing}; install pyspark=="):
        call(session)


def test_without_the_active_context_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(SparkContext, "_active_spark_context")
    with pytest.raises(HeadwaterError, match="has no _active_spark_context; install pyspark=="):
        jvm.context_exists()


def test_without_is_remote_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pyspark.sql.utils, "is_remote")
    with pytest.raises(HeadwaterError, match=r"import name 'is_remote'.*; install pyspark=="):
        jvm.is_remote()


class TestDaemon:
    def test_pyspark_is_as_we_know_it(self) -> None:
        daemon.check()

    def test_what_it_prints_goes_through_the_names_that_are_replaced(self) -> None:
        words = "words of Spark's Python processes come another way: look at spark/daemon.py"
        assert "traceback.print_exc()" in inspect.getsource(pyspark_daemon.manager), words
        worker = __import__(daemon.STATE_WORKER, fromlist=["main"])
        assert "print(" in inspect.getsource(worker), words

    def test_without_its_manager_a_sentence_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(pyspark_daemon, "manager")
        with pytest.raises(HeadwaterError, match=r"daemon has no manager; install pyspark=="):
            daemon.main()

    def test_the_worker_that_plans_states_says_nothing(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        worker = ModuleType(daemon.STATE_WORKER)
        exec("def work():\n    print('a step')", vars(worker))
        monkeypatch.setitem(sys.modules, daemon.STATE_WORKER, worker)
        daemon.quieten_state_worker()
        worker.work()
        assert capsys.readouterr().out == ""
