"""Signals that end a worker, and what was there before them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def on_signals(
    act: Callable[[int], object], *numbers: signal.Signals, loop: asyncio.AbstractEventLoop | None = None
) -> Iterator[None]:
    """Call `act` with each of these signals, on the loop if there is one.

    Only the main thread can hear them; in another one nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if loop is None:
            signal.signal(number, lambda number, _: act(number))
        else:
            loop.add_signal_handler(number, act, number)  # which also wakes it, whatever thread the signal comes to
    try:
        yield
    finally:
        for number, handler in before.items():
            if loop is not None:
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
