"""What Spark's console and the reports of jobs say on a terminal: nothing that it would obey."""

from __future__ import annotations

from pathlib import Path

from tests.cli.harness import on_terminal
from tests.cli.test_terminal import BAR, HOSTILE, OBEYED
from tests.spark.harness import Served

FILE = """
server: {server}
checkpoints: {state}
pipelines:
  p:
    sources: {{raw: {{topic: orders, value: text}}}}
    steps:
      - {{name: shown, sql: "SELECT value, struct(value) AS inner, map('k', value) AS m, message.offset FROM raw"}}
    sinks: {{screen: {{from: shown, console: true}}}}
    trigger: available-now
"""


def test_a_console_sink_and_a_report_of_dead_letters_are_not_obeyed(server: Served, tmp_path: Path) -> None:
    server.client.create_topic("orders", max_deliveries=1)
    server.client.publish("orders", HOSTILE)
    with server.client.consumer("orders", "kitchen") as consumer:
        consumer.receive(wait=5)[0].fail(HOSTILE)
    file = tmp_path / "file.yaml"
    file.write_text(FILE.format(server=server.address, state=tmp_path / "state"))
    for line in (["pipeline", "run", file], ["job", "dlq-report", "--server", server.address]):
        shown = BAR.sub("", on_terminal(*line))
        assert not [sign for sign in OBEYED if sign in shown], shown
        assert ("ok�]52;c;aGk=" if line[0] == "pipeline" else r"ok\x1b]52") in shown, shown
