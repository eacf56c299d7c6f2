"""Reports of messages that are published in the background: futures that are cheap until somebody waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from penstock import BrokerClosed, MessageId
from penstock.client.reports import Answer, Report

HERE = MessageId("t", 0, 1)


def set_all(reports: list[Report]) -> None:
    for report in reports:
        report.set_result(HERE)


def test_a_report_tells_its_outcome_and_makes_no_lock_for_it() -> None:
    report = Report()
    assert not report.done()
    report.set_result(HERE)
    assert (report.done(), report.result(), vars(report).get("_condition")) == (True, HERE, None)
    assert (report.exception(), report.cancelled(), report.running()) == (None, False, False)


def test_a_report_tells_why_a_message_was_not_published() -> None:
    report = Report()
    report.set_exception(BrokerClosed("gone"))
    assert report.done()
    assert isinstance(report.exception(), BrokerClosed)
    with pytest.raises(BrokerClosed, match="gone"):
        report.result()


def test_a_report_has_one_outcome() -> None:
    report = Report()
    report.set_result(HERE)
    with pytest.raises(concurrent.futures.InvalidStateError):
        report.set_result(HERE)
    with pytest.raises(concurrent.futures.InvalidStateError):
        report.set_exception(BrokerClosed("late"))
    assert not report.cancel()


def test_a_cancelled_report_takes_no_outcome() -> None:
    report = Report()
    assert report.cancel()
    assert (report.done(), report.cancelled()) == (True, True)
    with pytest.raises(concurrent.futures.InvalidStateError):
        report.set_result(HERE)
    with pytest.raises(concurrent.futures.CancelledError):
        report.result()


def test_who_asked_to_be_called_is_called_before_and_after_the_outcome() -> None:
    report = Report()
    told: list[object] = []
    report.add_done_callback(lambda done: told.append(("before", done.result())))
    report.set_result(HERE)
    report.add_done_callback(lambda done: told.append(("after", done.result())))
    assert told == [("before", HERE), ("after", HERE)]


def test_a_report_that_does_not_come_is_waited_for_as_long_as_asked() -> None:
    with pytest.raises(TimeoutError):
        Report().result(timeout=0.01)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = Report().nope


def test_the_library_waits_for_reports_as_for_any_future() -> None:
    reports = [Report() for _ in range(3)]
    reports[0].set_result(HERE)
    finishing = threading.Timer(0.01, set_all, args=(reports[1:],))
    finishing.start()
    done, left = concurrent.futures.wait(reports, timeout=30)
    assert (len(done), len(left)) == (3, 0)
    assert [report.result() for report in concurrent.futures.as_completed(reports)] == [HERE] * 3
    finishing.join()


def test_a_task_can_await_a_report() -> None:
    async def main() -> MessageId:
        report = Report()
        waiting = asyncio.wrap_future(report)
        threading.Thread(target=report.set_result, args=(HERE,)).start()
        return await waiting

    assert asyncio.run(main()) == HERE


def test_no_outcome_is_missed_by_a_thread_that_begins_to_wait_meanwhile() -> None:
    reports = [Report() for _ in range(20_000)]
    setting = threading.Thread(target=set_all, args=(reports,))
    setting.start()
    assert {report.result(timeout=60) for report in reversed(reports)} == {HERE}
    setting.join()


def test_an_answer_is_waited_for_by_its_thread() -> None:
    answer, failed = Answer(), Answer()
    assert not answer.done()
    threading.Thread(target=answer.set_result, args=(HERE,)).start()
    assert (answer.wait(), answer.done()) == (HERE, True)
    failed.set_exception(BrokerClosed("gone"))
    with pytest.raises(BrokerClosed):
        failed.wait()
