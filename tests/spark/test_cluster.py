"""A real cluster of Spark: a master, two workers, and a job to which the package is shipped as an archive."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Self

import pyspark
import pytest

import penstock
from penstock.spark.packaging import build_archive
from tests.cli.harness import PENSTOCK
from tests.server.harness import Child, until
from tests.spark.class_data import java_options

NEEDED = ("pyarrow", "msgspec", "pyroaring", "google-crc32c")
"""What workers need beside Spark, as `penstock spark package --help` says."""
PATIENCE_S = 120
SPARK_HOME = Path(pyspark.__file__).parent

JOB = """
import json, sys
import penstock
import penstock.spark
from pyspark.sql import functions as f

servers, checkpoint, answer = sys.argv[1:]
spark = penstock.spark.session("a job")

def there(_):
    import os, penstock, sys
    return penstock.__file__, sys.executable, os.getcwd()

table = spark.read.format("penstock").options(servers=servers, subscribe="orders", minPartitions=4).load()
distinct = table.select(f.count("*"), f.countDistinct("message_id"), f.min("value"), f.max("value")).first()
streamed = spark.readStream.format("penstock").options(
    servers=servers, subscribe="orders", startingOffsets="earliest", maxMessagesPerTrigger=2000
).load()
query = (
    streamed.select("key", "value").writeStream.format("penstock").options(servers=servers, topic="copies")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
found = {
    "master": spark.sparkContext.master,
    "driver": [penstock.__file__, sys.executable],
    "executors": spark.sparkContext.parallelize(range(8), 8).map(there).distinct().collect(),
    "table": [distinct[0], distinct[1], bytes(distinct[2]).decode(), bytes(distinct[3]).decode()],
    "tasks": table.rdd.getNumPartitions(),
    "tail": table.where("offset >= 1000").count(),
    "read_topic": penstock.spark.read_topic(spark, "orders", servers=servers).count(),
}

def deadly(number, rows):  # in the midst of them the executor dies: the Java process, two above this worker
    import os, signal
    from pyspark import TaskContext
    for place, row in enumerate(rows):
        if place == 500 and number == 1 and TaskContext.get().attemptNumber() == 0:
            daemon = os.getppid()
            with open(f"/proc/{daemon}/stat") as file:
                os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
            signal.pause()
        yield (f"{row:05}",)

rows = spark.sparkContext.parallelize(range(4000), 4).mapPartitionsWithIndex(deadly)
rows.toDF("value STRING").write.format("penstock").options(servers=servers, topic="survivors").mode("append").save()
spark.stop()
with open(answer, "w") as file:
    json.dump(found, file)
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python without Penstock, which has only what a worker is said to need."""
    home = tmp_path / "bare"
    venv.create(home, symlinks=True, with_pip=False)
    (packages,) = home.glob("lib/*/site-packages")
    for name in NEEDED:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            (packages / top).symlink_to(Path(str(found.locate_file(top))))
    python = str(home / "bin" / "python")
    missing = subprocess.run([python, "-c", "import penstock"], capture_output=True, text=True)
    assert "No module named 'penstock'" in missing.stderr
    return python


class Cluster:
    """A master and two workers, each a process."""

    def __init__(self, directory: Path, python: str) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }
        self.environment = {
            **kept,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "JAVA_TOOL_OPTIONS": java_options(),
            "PYSPARK_PYTHON": python,
        }
        self.address = ""

    def _start(self, kind: str, name: str, *arguments: str) -> Path:
        log = self._directory / f"{name}.log"
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        with log.open("wb") as file:
            process = subprocess.Popen(command, env=self.environment, stdout=file, stderr=file, cwd=self._directory)
        self._processes.append(process)
        return log

    def __enter__(self) -> Self:
        here = ["--host", "127.0.0.1", "--webui-port", "0"]
        log = self._start("master.Master", "master", *here, "--port", "0")
        try:
            self.address = until(lambda: _found(r"spark://127\.0\.0\.1:\d+", log), "the master", PATIENCE_S)
        except BaseException:
            self.__exit__()
            raise
        for name in ("first", "second"):
            place = str(self._directory / f"work of the {name}")
            self._start("worker.Worker", name, *here, "-c", "1", "-m", "768m", "--work-dir", place, self.address)
        return self

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a job and wait for it."""
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        }
        options = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.address, *options, *arguments]
        return subprocess.run(
            command, env=self.environment, cwd=self._directory, capture_output=True, text=True, timeout=PATIENCE_S * 2
        )

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()


def _found(pattern: str, log: Path) -> str | None:
    match = re.search(pattern, log.read_text())
    return None if match is None else match[0]


@pytest.fixture
def cluster(tmp_path: Path, bare_python: str) -> Iterator[Cluster]:
    with Cluster(tmp_path, bare_python) as running:
        yield running


@pytest.mark.cluster
def test_S5_a_job_on_a_cluster_reads_and_writes_with_nothing_but_the_archive_also_when_an_executor_dies(
    cluster: Cluster, tmp_path: Path
) -> None:
    archive, job, answer = (tmp_path / name for name in ("penstock.zip", "job.py", "answer.json"))
    subprocess.run([PENSTOCK, "spark", "package", str(archive)], check=True, capture_output=True)
    job.write_text(JOB)
    data = tmp_path / "data"
    with penstock.open(data) as broker:
        broker.create_topic("orders", partitions=2)
        for partition in range(2):
            broker.publish_many(
                "orders", [penstock.Message(f"{n:05}", partition=partition) for n in range(partition, 2000, 2)]
            )
        broker.settle()
    with Child(data) as server, penstock.connect(server.address) as client:
        for partition in range(2):
            client.publish_many(
                "orders", [penstock.Message(f"{n:05}", partition=partition) for n in range(2000 + partition, 3000, 2)]
            )
        done = cluster.submit(
            "--py-files", str(archive), str(job), server.address, str(tmp_path / "checkpoint"), str(answer)
        )
        assert done.returncode == 0, done.stdout + done.stderr[-20000:]  # Python's own errors go to the former
        assert sorted(message.value for message in client.read("copies")) == [b"%05d" % n for n in range(3000)]
        assert sorted(message.value for message in client.read("survivors")) == [b"%05d" % n for n in range(4000)]
        (group,) = client.groups("orders")
        assert group.name == "spark-orders" and group.lag <= 1000  # the last batch is told with the next
    found = json.loads(answer.read_text())
    assert found["master"] == cluster.address
    assert found["table"] == [3000, 3000, "00000", "02999"]
    assert found["tail"] == 1000 and found["read_topic"] == 3000 and found["tasks"] >= 4
    places = [found["driver"], *([file, python] for file, python, _ in found["executors"])]
    assert all("penstock.zip" in file and python == cluster.environment["PYSPARK_PYTHON"] for file, python in places)
    assert len({directory for _, _, directory in found["executors"]}) == 2  # both workers had a part in it
    assert re.search(r"Lost executor \d|ExecutorLostFailure", done.stderr)


def test_the_archive_is_the_same_each_time_and_has_the_whole_package(tmp_path: Path) -> None:
    first = build_archive(tmp_path / "first.zip").read_bytes()
    (tmp_path / "second.zip").write_text("what was there before")
    assert build_archive(tmp_path / "second.zip").read_bytes() == first
    names = zipfile.ZipFile(tmp_path / "first.zip").namelist()
    assert {"penstock/__init__.py", "penstock/spark/source.py", "pyspark_penstock/__init__.py"} <= set(names)
    assert "penstock/spark/log4j2.properties" in names
    assert names == sorted(names) and not [name for name in names if "__pycache__" in name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.zip", "second.zip"]


def test_an_archive_on_the_path_that_is_gone_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sessions on clusters leave one behind when they end."""
    first = build_archive(tmp_path / "first.zip")
    made = first.read_bytes()
    monkeypatch.syspath_prepend(str(first))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pyspark_nothing")  # by which Python has looked into it
    first.unlink()
    assert build_archive(tmp_path / "second.zip").read_bytes() == made


def test_the_archive_can_be_imported_without_the_package(tmp_path: Path) -> None:
    archive = build_archive(tmp_path / "penstock.zip")
    code = "import penstock.spark, penstock.spark.writing, pyspark_penstock; print(pyspark_penstock.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {code}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(archive))


def test_packaging_is_a_command_that_tells_where_the_archive_is(tmp_path: Path) -> None:
    done = subprocess.run([PENSTOCK, "spark", "package"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "penstock.zip\n", "")
    assert zipfile.is_zipfile(tmp_path / "penstock.zip")
    refused = subprocess.run(
        [PENSTOCK, "spark", "package", str(tmp_path / "nowhere" / "x.zip")], capture_output=True, text=True
    )
    assert refused.returncode == 1 and refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path}/nowhere/x.zip: No such file or directory (hint: ")
