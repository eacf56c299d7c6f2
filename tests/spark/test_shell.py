"""`penstock spark shell`, and what else makes a session: registration, discovery, and what is imported when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import penstock
import penstock.spark
from penstock.spark import shell
from penstock.spark.registering import register
from penstock.spark.sessions import _on_this_machine
from tests.cli.harness import Command, Done, on_directory, on_server
from tests.spark.harness import Served

HARMLESS = ("WARNING: Using incubator modules",)
"""What Java says on standard error, whatever is asked for."""


@pytest.fixture
def lent(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell gets the session of the tests, so that it can run in this process."""
    monkeypatch.setattr(shell, "session", lambda *_, **__: spark)
    monkeypatch.setattr(shell, "hush", lambda: None)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


def run(command: Command, code: str) -> Done:
    """Run code in the shell, as a process of its own."""
    with command.start("spark", "shell", "--master", "local[1]", "-e", code) as process:
        out, err = process.communicate(timeout=240)
    told = [line for line in err.decode().splitlines() if not line.startswith(HARMLESS)]
    return Done(process.returncode, out.decode(), "\n".join(told))


# The shell.


def test_the_shell_runs_code_on_a_directory_and_prints_nothing_else(tmp_path: Path) -> None:
    with on_directory(tmp_path / "data") as command:
        with command.open() as broker:
            broker.publish_many("orders", ['{"cups": 2}', '{"cups": 3}'])
            broker.settle()
            broker.publish("orders", '{"cups": 4}')
        code = """
for row in topics().collect():
    print(row.topic, row.end_offset, row.settled_end)
print(from_json(read_topic("orders")).selectExpr("sum(data.cups)").first()[0])
print(read_events("orders").count())
print(spark.read.format("penstock").options(path=PATH, subscribe="orders").load().count())
"""
        done = run(command, code.replace("PATH", repr(str(tmp_path / "data"))))
    assert done == Done(0, "orders 3 2\n9\n0\n3\n", "")


def test_the_shell_runs_code_on_a_server_and_tells_its_exceptions_in_short(
    tmp_path: Path,
) -> None:
    with on_server(tmp_path / "data") as command:
        command.ok("publish", "orders", "two coffees")
        code = """print(read_topic("orders").first().value.decode())
def further(name):
    spark.sql(f"SELECT {name}")
further("nothing")"""
        done = run(command, code)
    assert done.code == 1 and done.out == "two coffees\n"
    told = done.err.splitlines()
    assert told[:3] == ["Traceback:", "  line 4, in <shell>", "  line 3, in <shell>"]
    assert "UNRESOLVED_COLUMN" in told[3] and len(told) < 10


@pytest.mark.usefixtures("lent")
def test_a_topic_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with on_directory(tmp_path / "data") as command:
        command.ok("publish", "orders", "x")
        line = command.refused("spark", "shell", "-e", 'read_topic("orderz")')
    assert line == "error: there is no topic 'orderz' (hint: `penstock topic list` shows what is there)"


def test_ctrl_c_ends_the_code(tmp_path: Path) -> None:
    with on_directory(tmp_path / "data") as command:
        command.ok("publish", "orders", "x")
        code = "import time; print('begun', flush=True); time.sleep(600)"
        with command.start("spark", "shell", "--master", "local[1]", "-e", code) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 130


@pytest.mark.usefixtures("lent")
def test_a_prompt_has_the_names_that_it_tells_of(tmp_path: Path) -> None:
    with on_directory(tmp_path / "data") as command:
        command.ok("publish", "orders", "x")
        done = command("spark", "shell", stdin="print(*[row.topic for row in topics().collect()])\nnothing\n")
    assert done.code == 0 and "orders\n" in done.out
    assert f"with the topics of {tmp_path}/data" in done.err and "Leave with Ctrl-D." in done.err
    assert "NameError: name 'nothing' is not defined" in done.err
    for name in ("spark", "topics", "read_topic", "read_events", "explode_events", "from_json"):
        assert f"\n  {name} " in done.err


def test_a_directory_that_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    with on_directory(tmp_path / "nowhere") as command:
        assert "nowhere is not a directory" in command.refused("spark", "shell", code=2)


def test_without_pyspark_there_is_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from penstock.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "spark", "shell"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: PySpark 4.2 or newer is not installed (hint: pip install 'penstock[spark]')\n"


def test_tracebacks_show_the_lines_that_were_given_and_both_ends_of_what_is_long() -> None:
    def told(code: str) -> list[str]:
        with pytest.raises((ArithmeticError, SyntaxError, ValueError)) as caught:
            shell.run(code, {})
        return shell.shortened(caught.value).splitlines()

    assert told("x = 1\n1 / 0") == ["Traceback:", "  line 2, in <shell>", "ZeroDivisionError: division by zero"]
    assert told("import json; json.loads('{')")[:2] == ["Traceback:", "  line 1, in <shell>"]
    assert told("x = (")[-1] == "SyntaxError: '(' was never closed"
    long = told("raise ValueError('\\n'.join(map(str, range(100))))")
    assert long[2] == "ValueError: 0" and long[-1] == "99" and "  ..." in long and len(long) < 20
    java = told("raise ValueError('wrong\\n\\tat org.apache.Spark(Spark.scala:1)\\n\\nJVM stacktrace:\\nmore')")
    assert java[2:] == ["ValueError: wrong"]


# Registration.


def test_the_source_can_be_registered_again_and_in_every_session(spark: SparkSession, server: Served) -> None:
    server.client.publish("orders", "x")
    for session in (spark, spark, spark.newSession()):
        register(session)
        assert server.table(session, subscribe="orders").count() == 1
    assert penstock.spark.session() is spark


def test_spark_finds_the_source_by_itself(spark: SparkSession, server: Served) -> None:
    server.client.publish("orders", "x")
    assert server.table(spark.newSession(), subscribe="orders").count() == 1


def test_a_session_after_one_that_was_stopped_has_the_source_too(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as broker:
        broker.publish("orders", "x")
    code = """
import sys
import penstock.spark
for _ in range(2):
    spark = penstock.spark.session("again", master="local[1]")
    penstock.spark.register(spark)
    print(spark.read.format("penstock").options(path=sys.argv[1], subscribe="orders").load().count())
    print(spark.conf.get("spark.driver.host").replace("localhost", "127.0.0.1"))
    spark.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stdout) == (0, "1\n127.0.0.1\n" * 2), done.stderr


def test_workers_on_this_machine_import_the_pyspark_that_is_installed_and_not_the_zipped_one(
    spark: SparkSession,
) -> None:
    def there(_: int) -> tuple[str, str]:
        import pyspark

        return pyspark.__file__, sys.executable

    found = spark.sparkContext.parallelize([1], 1).map(there).collect()
    assert found == [(pyspark.__file__, sys.executable)]


def test_a_python_for_workers_that_somebody_chose_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for workers, driver in (("/opt/python", sys.executable), (sys.executable, "ipython")):
        monkeypatch.setenv("PYSPARK_PYTHON", workers)
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", driver)
        with _on_this_machine():
            assert os.environ["PYSPARK_PYTHON"] == workers
        assert os.environ["PYSPARK_PYTHON"] == workers


def test_only_what_is_started_meanwhile_is_reached_from_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (None, "192.0.2.1"):
        monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
        if given is not None:
            monkeypatch.setenv("SPARK_LOCAL_IP", given)
        with _on_this_machine():
            assert os.environ["SPARK_LOCAL_IP"] == (given or "127.0.0.1")
        assert os.environ.get("SPARK_LOCAL_IP") == given


# What is imported when.


def test_importing_the_package_loads_no_pyspark_and_starts_no_java() -> None:
    code = """
import os, sys
import penstock.spark
assert "pyspark" not in sys.modules and "pyarrow" not in sys.modules
assert penstock.spark.DataLoss and "pyspark" not in sys.modules
import pyspark_penstock
assert pyspark_penstock.DefaultSource is penstock.spark.PenstockDataSource
from pyspark import SparkContext
assert SparkContext._gateway is None and "JAVA_HOME" not in os.environ and "PYSPARK_PYTHON" not in os.environ
"""
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=kept)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in penstock.spark.__all__:
        assert getattr(penstock.spark, name).__doc__, name
