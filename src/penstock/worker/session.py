"""One consumer of a subscription: it takes messages when handlers are free, and settles them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from penstock.model.errors import LeaseLost
from penstock.worker.leases import Acks, Keeper, Work
from penstock.worker.subscription import Subscription
from penstock.worker.surface import Consumer
from penstock.worker.verdict import Discard, TookTooLong, Verdict, judge, reason_of

logger = logging.getLogger("penstock.worker")

_WAIT_S = 20.0
_HEARTBEAT_S = 10.0
_CANCEL_S = 3.0
_CLOSE_S = 5.0

Answer = tuple[Any, BaseException | None]
_Job = tuple["asyncio.Future[Answer]", Callable[[Any], object], object]


class Slots:
    """How many more messages a subscription may have in hand."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._given = asyncio.Event()

    async def free(self) -> int:
        """Wait until a slot is free; how many are free then."""
        while self._free == 0:
            self._given.clear()
            await self._given.wait()
        return self._free

    def take(self) -> None:
        """Take a slot for one more message."""
        self._free -= 1

    def give(self) -> None:
        """Free the slot of a message."""
        self._free += 1
        self._given.set()


class Threads:
    """Threads for handlers that are plain functions, each started when it is first needed; used from one event loop.

    They are daemons: one that hangs does not keep the process alive.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = 0
        self._busy = 0

    def call(self, function: Callable[[Any], object], argument: object) -> asyncio.Future[Answer]:
        """Call it in a thread; the future has what it returned, or what it raised."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._jobs.put((future, function, argument))
        self._busy += 1
        if self._busy > self._started < self._size:
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def close(self) -> None:
        """End the threads, each when it is idle."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function, argument = job
            try:
                answer: Answer = (function(argument), None)
            except BaseException as error:  # noqa: BLE001 - told to whoever waits for it
                answer = (None, error)
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._done, future, answer)
            del job, future, argument, answer

    def _done(self, future: asyncio.Future[Answer], answer: Answer) -> None:
        self._busy -= 1
        if not future.done():
            future.set_result(answer)


class WorkerSession:
    """One consumer, from opening to closing it."""

    def __init__(self, subscription: Subscription, consumer: Consumer, slots: Slots, threads: Threads | None) -> None:
        self._subscription = subscription
        self._consumer = consumer
        self._slots = slots
        self._threads = threads
        self._works: set[Work] = set()
        self._keeper = Keeper(consumer)
        self._acks = Acks(consumer)
        self._idle = asyncio.Event()  # no message is in hand, or they are given up
        self._idle.set()
        self._stopping = False

    async def pump(self) -> None:
        """Receive messages until cancelled; every received message is then in hand, or was given back."""
        beating = asyncio.create_task(self._beat()) if self._subscription.mode == "assigned" else None
        try:
            while True:
                free = await self._slots.free()
                for message in await self._consumer.receive(free, wait=_WAIT_S):
                    work = Work(message, self._subscription.visibility_s or message.lease.visibility_s)
                    self._slots.take()
                    self._works.add(work)
                    self._idle.clear()
                    work.task = asyncio.create_task(self._work(work))
        finally:
            if beating is not None:
                beating.cancel()

    async def finish(self) -> None:
        """Wait until all messages in hand are finished, then leave the group, which releases what is still leased."""
        await self._idle.wait()
        self._keeper.close()
        try:
            await asyncio.wait_for(self._consumer.close(), _CLOSE_S)
        except Exception as error:  # noqa: BLE001 - messages still leased are delivered again when their leases run out
            logger.warning("%s: closing the consumer: %s", self._subscription.name, reason_of(error))

    def stop_handlers(self) -> None:
        """Cancel running handlers and release their messages; a thread runs on, and its message is delivered again."""
        self._stopping = True
        for work in self._works:
            if not work.finishing:
                work.task.cancel()
        asyncio.get_running_loop().call_later(_CANCEL_S, self._idle.set)

    async def _beat(self) -> None:
        """Send heartbeats, also while all handlers are busy."""
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            with contextlib.suppress(Exception):  # receiving raises the error
                await self._consumer.heartbeat()

    async def _work(self, work: Work) -> None:
        error: BaseException | None = None
        if self._subscription.auto_extend:
            self._keeper.add(work)
        try:
            await self._handle(work)
        except (Exception, SystemExit, asyncio.CancelledError) as raised:  # noqa: BLE001 - judged below
            error = raised
        work.finishing = True
        self._keeper.remove(work)
        try:
            if isinstance(error, asyncio.CancelledError) and self._stopping:
                verdict = Verdict("release")
            else:
                verdict = judge(error, work.message, self._subscription)
            _tell(work, verdict, error)
            await self._finish(work, verdict)
        except LeaseLost:
            logger.warning("%s was not held any more when its handler ended: it may be handled twice", work.message.id)
        except Exception as refused:  # noqa: BLE001 - the worker goes on, and the message is delivered again
            logger.warning("%s could not be finished, and comes again: %s", work.message.id, reason_of(refused))
        finally:
            self._works.discard(work)
            if not self._works:
                self._idle.set()
            if isinstance(error, TookTooLong) and error.thread is not None:
                error.thread.add_done_callback(lambda _: self._slots.give())  # the thread is busy until then
            else:
                self._slots.give()

    async def _handle(self, work: Work) -> None:
        retries, timeout_s = self._subscription.retries, self._subscription.timeout_s
        if retries is not None and work.message.failures >= retries:
            raise Discard(f"it had failed {work.message.failures} times when it came here")
        handler, argument = self._subscription.handler, work.message
        if self._threads is not None:
            thread = self._threads.call(handler, argument)
            done, _ = await asyncio.wait([thread], timeout=timeout_s)
            if timeout_s is not None and not done:
                raise TookTooLong(timeout_s, thread)
            result, error = thread.result()
            if error is not None:
                raise error
        else:
            result = handler(argument)
        if inspect.isawaitable(result):
            limit = asyncio.timeout(timeout_s)
            try:
                async with limit:
                    await result
            except TimeoutError:
                if timeout_s is not None and limit.expired():
                    raise TookTooLong(timeout_s) from None
                raise

    async def _finish(self, work: Work, verdict: Verdict) -> None:
        message = work.message
        match verdict.act:
            case "ack":
                await self._acks.ack(message)
            case "release":
                await message.release()
            case "kill":
                await message.kill(verdict.reason)
            case _:
                await message.fail(verdict.reason, verdict.delay_s)


def _tell(work: Work, verdict: Verdict, error: BaseException | None) -> None:
    if verdict.act == "ack":
        return
    said = {
        "release": "%s is given back",
        "kill": "%s goes to the dead letters: %s",
        "fail": "%s failed: %s",
    }[verdict.act]
    level = logging.ERROR if verdict.traceback else logging.INFO if verdict.act == "release" else logging.WARNING
    facts = (work.message.id,) if verdict.act == "release" else (work.message.id, verdict.reason)
    logger.log(level, said, *facts, exc_info=error if verdict.traceback else None)
