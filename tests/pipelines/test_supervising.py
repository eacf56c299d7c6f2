"""Pipelines that fail, start again, stop, and are seen and stopped by others."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.model.errors import InvalidArgument
from penstock.model.pipelines import PipelineReport, PipelineState
from penstock.spark.jobs.place import Place
from penstock.spark.pipelines import load
from penstock.spark.pipelines.control import AlreadyRunning, RunFiles, misfit
from penstock.spark.pipelines.server import Reports
from tests.pipelines.harness import Background, declare, run_now, values
from tests.server.harness import free_port, until
from tests.spark.harness import Served
from tests.spark.streams import serving

TWO = """
    pipelines:
      steady:
        sources: {s: {topic: a}}
        sinks: {o: {from: s, topic: steady}}
        trigger: 100ms
      shaky:
        sources: {s: {topic: a, value: text}}
        steps: [{name: divided, sql: "SELECT 10 DIV CAST(value AS INT) AS value, message FROM s"}]
        sinks: {o: {from: divided, topic: shaky, value: CAST(value AS STRING)}}
        trigger: 100ms
"""
COPY = """
    pipelines:
      copy:
        sources: {s: {topic: a}}
        sinks: {o: {from: s, topic: b}}
        trigger: available-now
"""


def command(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["pipeline", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_pipeline_that_fails_is_started_again_alone_and_all_are_seen_and_stopped_from_outside(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    declared = declare(tmp_path, TWO)
    file = tmp_path / "file.yaml"
    assert command("list", file)[1].splitlines()[1].split()[:2] == ["steady", "-"]
    with Background(spark, server.address, declared) as running:
        assert server.client.publish("a", "5")  # the topic was made, or is now
        until(lambda: values(server, "steady") and values(server, "shaky"), "a first message", 90)
        server.client.publish("a", "0")  # on which the SQL fails
        running.wait_for("shaky", PipelineState.WAITING)
        until(lambda: running.heard.were("shaky").count(PipelineState.WAITING) >= 2, "another failure", 90)
        again = [note for note in running.heard.notes if note.startswith("again")]
        assert again[:2] == ["again in 1 s", "again in 2 s"]
        states = list(dict.fromkeys(running.heard.were("steady")))  # that it made a topic is told while it starts
        assert states == [PipelineState.STARTING, PipelineState.RUNNING]
        server.client.publish("a", "2")
        until(lambda: values(server, "steady") == Counter([b"5", b"0", b"2"]), "the other goes on", 60)

        with pytest.raises(AlreadyRunning, match=r"steady runs already \(process \d+ on .*, file\.yaml\)"):
            Background(spark, server.address, declared).supervisor.start()
        code, told = command("status", file, "-o", "json")
        steady, shaky = json.loads(told)
        assert code == 0 and steady["state"] == "running" and steady["queries"][0]["name"] == "steady.o"
        assert shaky["restarts"] >= 1 and "DIVIDE_BY_ZERO" in shaky["error"]
        reported = {report.name: report for report in server.client.pipelines()}
        assert reported["steady"].queries[0].writes == ("steady",) and reported["shaky"].restarts >= 1

        assert command("stop", file, "shaky") == (0, "shaky has stopped\n")
        assert running.state("steady") is PipelineState.RUNNING
        assert command("stop", file) == (0, "steady has stopped\nshaky does not run\n")
    assert [report.state for report in running.supervisor.wait()] == [PipelineState.STOPPED] * 2
    assert [line.split()[1] for line in command("list", file)[1].splitlines()[1:]] == ["stopped", "stopped"]


def test_a_stop_waits_for_the_batch_under_way(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    """What a batch was about to write is there when the pipeline has stopped, and nothing comes twice later."""
    (tmp_path / "slow.py").write_text(
        "from pyspark.sql import functions as f\n"
        "def slow(frame):\n"
        "    return frame.where(f.expr(\"reflect('java.lang.Thread', 'sleep', 1500L) IS NOT NULL OR true\"))\n"
    )
    declared = declare(
        tmp_path,
        """
        pipelines:
          slow:
            sources: {s: {topic: a, max_per_trigger: 1}}
            steps: [{name: slowly, python: "slow:slow", input: s}]
            sinks: {o: {from: slowly, topic: b}}
        """,
    )
    server.client.publish_many("a", ["1", "2", "3"])
    with Background(spark, server.address, declared) as running:
        until(lambda: running.heard.total("slow.o") >= 1, "a first batch", 90)
        running.supervisor.stop(60)
        (report,) = running.supervisor.wait()
        assert report.state is PipelineState.STOPPED
    seen = values(server, "b")
    assert sum(seen.values()) == running.heard.total("slow.o") == report.queries[0].rows
    text = (tmp_path / "file.yaml").read_text() + "    trigger: available-now\n"
    run_now(spark, server, declare(tmp_path, text))
    assert values(server, "b") == Counter([b"1", b"2", b"3"])


def test_what_can_never_work_is_given_up_and_a_checkpoint_belongs_to_one_query(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    server.client.publish("a", "1")
    server.client.publish("c", "1")
    run_now(spark, server, declare(tmp_path, COPY))
    other = declare(tmp_path, COPY.replace("topic: a", "topic: c"))
    with Background(spark, server.address, other) as running:
        running.wait_for("copy", PipelineState.FAILED)
        error = running.supervisor.pipelines[0].report.error
    made = "copy.o: the checkpoint {} was made by a query that read topic a; now that is topic c"
    assert str(error).startswith(made.format(tmp_path / "checkpoints/copy/o"))
    assert command("status", tmp_path / "file.yaml")[0] == 1
    assert values(server, "b") == {b"1": 1}

    table = declare(tmp_path, COPY.replace("topic: b", "table: ./t"))
    shutil.rmtree(tmp_path / "checkpoints")
    run_now(spark, server, table)
    shutil.rmtree(tmp_path / "checkpoints")  # Spark would take its batches for those that the table has
    with Background(spark, server.address, table) as running:
        running.wait_for("copy", PipelineState.FAILED)
        assert "was written by a query whose checkpoint is not" in str(running.supervisor.pipelines[0].report.error)


def test_errors_of_spark_about_checkpoints_are_told_as_such(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.spark.pipelines.planning import Query

    query = Query("p.o", spark.range(1), "penstock", tmp_path / "o", {})
    told = misfit(query, "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema\n does not match")
    assert isinstance(told, InvalidArgument) and "does not fit the query: remove it to begin anew" in str(told)
    assert misfit(query, "the connection was lost") is None


def test_a_process_that_is_gone_without_a_word_is_told(tmp_path: Path) -> None:
    declare(tmp_path, COPY)
    files = RunFiles(tmp_path / "checkpoints/copy")
    assert files.report() is None and not files.is_held
    files.take()
    files.tell(PipelineReport(name="copy", state=PipelineState.RUNNING, pid=7, host="h"))
    report = files.report()
    assert report is not None and report.state is PipelineState.RUNNING
    files.let_go()
    code, told = command("status", tmp_path / "file.yaml")
    assert code == 1 and "it failed: its process (7 on h) is gone without a word" in told
    (tmp_path / "checkpoints/copy/run.json").write_text("nonsense")
    assert command("status", tmp_path / "file.yaml") == (0, "copy never ran\n")
    assert command("stop", tmp_path / "file.yaml") == (0, "copy does not run\n")
    assert command("status", tmp_path / "file.yaml", "nobody")[0] == 2


def test_a_server_that_is_away_holds_up_nobody_and_hears_it_later(tmp_path: Path) -> None:
    port = free_port()
    reports = Reports(Place(servers=f"127.0.0.1:{port}"))
    for state in (PipelineState.STARTING, PipelineState.RUNNING):
        reports.put(PipelineReport(name="p", state=state))
    with serving(tmp_path / "data", port) as server:
        until(lambda: [report.state for report in server.client.pipelines()] == [PipelineState.RUNNING], "a report")
        reports.close()


def test_problems_of_a_file_are_told_a_line_each_by_every_command(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("pipeline: {}\nserver: x\n")
    for name in ("run", "check", "list", "status", "stop"):
        code, told = command(name, file)
        lines = told.splitlines()
        assert code == 2 and len(lines) == 3, told
        assert lines[0] == f"error: {file}:1: pipeline: unknown key, did you mean pipelines?"
    with pytest.raises(InvalidArgument):
        load(file)
