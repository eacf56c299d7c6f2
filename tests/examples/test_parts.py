"""The parts of the main job that need no Spark: orders, children that are tied, ports that are taken, errors."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

import penstock
from examples.orders.parts import Child, ChildDied, Serving
from examples.orders.shop import PRIORITIES, Shop
from tests.server.harness import until

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def test_the_same_number_is_the_same_order_and_all_kinds_of_trouble_come() -> None:
    orders = [Shop().order(number, NOW) for number in range(3000)]
    assert orders == [Shop().order(number, NOW) for number in range(3000)]
    assert Shop(seed=8).order(1, NOW) != orders[1]
    good = [json.loads(order.value) for order in orders if _is_json(order.value)]
    assert 5 < len(orders) - len(good) < 60
    assert all(round(sum(i["count"] * i["price"] for i in order["items"]), 2) == order["amount"] for order in good)
    assert {order["payment"] for order in good} == {"card", "invoice", "bank transfer", "expired card"}
    shares = Counter(order.priority for order in orders)
    assert {name: round(100 * shares[name] / 3000 / share) for name, share in PRIORITIES.items()} == dict.fromkeys(
        PRIORITIES, 1
    )
    assert 0 < sum(order.delay is not None for order in orders) < 300


def _is_json(value: bytes | str) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


@pytest.mark.crash
def test_a_child_is_killed_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from examples.orders.parts import Child\n"
        "with Child('sleeper', ['/bin/sleep', '600'], Path(sys.argv[1]), {}) as child:\n"
        "    print(child.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(lambda: b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes(), "the child")
        parent.send_signal(signal.SIGKILL)
    until(lambda: _is_gone(pid), "the end of the child")


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_child_that_ends_by_itself_is_told_of_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no milk')"]
    with Child("kitchen", command, tmp_path / "log", os.environ) as child:
        until(lambda: _is_dead(child), "its end")
        with pytest.raises(ChildDied, match=r"the kitchen ended by itself \(exit code 1\)[^$]*    no milk"):
            child.check()


def _is_dead(child: Child) -> bool:
    try:
        child.check()
    except ChildDied:
        return True
    return False


def test_a_port_that_is_taken_is_replaced_and_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        wanted = {"PENSTOCK_NATIVE_PORT": str(port), "PENSTOCK_HTTP_PORT": "off"}
        with Serving(tmp_path / "data", wanted) as serving:
            assert serving.moved == [f"port {port} is taken"]
            assert list(serving.addresses) == ["native"]
            with penstock.connect(serving.addresses["native"]) as client:
                client.publish("t", "v")
            assert [message.value for message in serving.broker.read("t")] == [b"v"]


def test_results_of_nothing_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.orders.results", "--dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: there is nothing in {tmp_path}: `make run` comes first\n"


def test_a_second_main_job_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data"):
        command = [sys.executable, "-m", "examples.orders.run", "--dir", str(tmp_path)]
        environment = {**os.environ, "PENSTOCK_NATIVE_PORT": "0"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"error: another broker has {tmp_path}/data: does `make run` run elsewhere?\n"
