"""Threads on virtual time that take turns where they ask for something: one seed makes one course of events.

Whoever runs is an *actor*. It gives its turn away when it sleeps, and around each request to a bucket; who is next, and
how long requests take, comes from the seed. An actor can be killed, or stopped for a while, wherever it waits.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable


class Killed(BaseException):
    """This actor has ended, in the middle of whatever it was doing."""


class Actor:
    """A thread, and when it goes on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.turn = threading.Semaphore(0)
        self.wake_s = 0.0
        self.stopped_until_s = 0.0
        self.is_killed = False
        self.failure: BaseException | None = None

    @property
    def goes_on_s(self) -> float:
        """When it goes on."""
        return max(self.wake_s, self.stopped_until_s)


class Schedule:
    """All actors, and the time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 1_000.0
        self.log: list[str] = []
        self.turns = 0
        self._main = Actor("main")
        self._current = self._main
        self._actors = [self._main]

    def say(self, text: str) -> None:
        """Note what happens."""
        self.log.append(f"{self.now_s:.4f} {self._current.name}: {text}")

    def start(self, name: str, work: Callable[[], None]) -> Actor:
        """Start an actor, which runs when its turn comes."""
        actor = Actor(name)
        actor.wake_s = self.now_s
        self._actors.append(actor)

        def run() -> None:
            actor.turn.acquire()
            try:
                self._check_killed(actor)
                work()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - it is raised where everybody sees it
                actor.failure = error
            self._actors.remove(actor)
            if actor.failure is not None:
                self._main.failure = self._main.failure or actor.failure
                self._main.wake_s = self.now_s
            self._give_turn()

        threading.Thread(target=run, name=name, daemon=True).start()
        return actor

    def kill(self, actor: Actor) -> None:
        """Have an actor end where it is."""
        actor.is_killed = True
        actor.wake_s, actor.stopped_until_s = self.now_s, 0.0

    def stop(self, actor: Actor, seconds: float) -> None:
        """Have an actor do nothing for a while."""
        actor.stopped_until_s = self.now_s + seconds

    def wait(self, low_s: float = 0.0005, high_s: float = 0.01) -> None:
        """Let the others go on for as long as something takes."""
        self.sleep(self.random.uniform(low_s, high_s))

    def sleep(self, seconds: float) -> None:
        """Go on after this time."""
        actor = self._current
        if actor.is_killed:
            raise Killed
        actor.wake_s = self.now_s + seconds
        self._give_turn()
        if actor is not self._current:
            actor.turn.acquire()
        self._check_killed(actor)

    def _check_killed(self, actor: Actor) -> None:
        if actor.is_killed:
            raise Killed
        if actor is self._main and actor.failure is not None:
            raise actor.failure

    def _give_turn(self) -> None:
        """Whoever goes on first is next."""
        self.turns += 1
        following = min(self._actors, key=lambda actor: actor.goes_on_s)
        self.now_s = max(self.now_s, following.goes_on_s)
        previous, self._current = self._current, following
        if following is not previous:
            following.turn.release()
