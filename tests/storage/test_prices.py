"""What a bucket costs: prices times what is asked of it, and what brokers will ask."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from penstock.cluster import members, registry
from penstock.cluster.members import Heartbeat
from penstock.storage.prices import EXPRESS, GB, HEARTBEAT_S, LIST_S, LOOK_S, MONTH_S, STANDARD, Traffic, forecast

PAGE = Path(__file__).parents[2] / "docs/explanation/bucket-costs.md"


def test_a_month_of_requests_costs_what_the_price_list_says() -> None:
    thousand_a_month = 1000 / MONTH_S
    traffic = Traffic(puts=thousand_a_month, lists=thousand_a_month, gets=thousand_a_month, deletes=thousand_a_month)
    costs = traffic.dollars(STANDARD)
    assert {name: round(cost, 6) for name, cost in costs.items() if cost} == {
        "puts": 0.005,
        "lists": 0.005,
        "gets": 0.0004,
        "total": 0.0104,
    }


def test_the_example_of_the_maker_of_express_costs_what_he_says() -> None:
    """10 GB for a month, a million puts and nine million gets of 10 KB: 1.10 + 1.13 + 0.27 + 0.03 + 0.05 dollars."""
    puts, gets = 1e6 / MONTH_S, 9e6 / MONTH_S
    traffic = Traffic(
        puts=puts, gets=gets, uploaded_bytes=puts * 10_000, downloaded_bytes=gets * 10_000, stored_bytes=10 * GB
    )
    assert traffic.dollars(EXPRESS)["total"] == pytest.approx(2.58, abs=0.01)


def test_every_field_is_charged_by_its_own_name() -> None:
    names = {field.name for field in dataclasses.fields(Traffic)}
    assert Traffic().dollars(STANDARD).keys() == names | {"total"}


def test_idle_shards_cost_nothing_but_the_brokers_heartbeats() -> None:
    idle, busy = forecast(0, 0.1, 3), forecast(4, 0.1, 3)
    assert idle.puts == pytest.approx(6)  # two a second for each broker
    assert busy.puts - idle.puts == pytest.approx(4 * 10, rel=0.01)
    assert (idle.gets, idle.lists) == (busy.gets, busy.lists)


def test_the_forecast_knows_how_often_brokers_look_for_one_another() -> None:
    assert (HEARTBEAT_S, LOOK_S, LIST_S) == (members.BEAT_S, members.LOOK_S, registry._LIST_S)
    looking = members.Members(0)
    looking.looked({number: Heartbeat(number=number, incarnation="", beat=1) for number in (1, 2)}, 0.0)
    assert forecast(0, 1.0, 3).gets == pytest.approx(3 * len(looking.wanted) / LOOK_S)


def test_the_tables_of_the_docs_are_what_is_computed() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) ms \| ([\d,]+) \| ([\d,]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 6
    for brokers, shards, interval_ms, *told in rows:
        traffic = forecast(int(shards), int(interval_ms) / 1000, int(brokers))
        computed = [f"{traffic.dollars(prices)['total']:,.0f}" for prices in (STANDARD, EXPRESS)]
        assert told == computed, (brokers, shards, interval_ms)
