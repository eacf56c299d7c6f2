"""Make those faces of the broker that can be made: embedded and on a server, awaited and in plain calls.

    python -m tools.faces           writes them (`make faces`)
    python -m tools.faces --check   says which of them are not current

They are kept in the tree, so that editors and type checkers see what people use. There are two kinds:

- From the table of operations (`penstock/api/operations.py`): whatever only hands its arguments on. What is more than
  that is written by hand, and is not made. Where the table has no words, those of `penstock.Broker` are taken.
- From the awaited half of the client, by taking `async` and `await` away: its plain half. Both stand on a few methods
  that are written twice, in `client/client.py` and `client/sync.py`. So functions that are given to a plain client are
  called in the thread that gave them.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.api import operations as table
from penstock.api.operation import Operation, Waits
from penstock.api.operations import OPERATIONS, BrokerOperations, PipelineOperations, ProcessOperations

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/penstock"
AWAITED = ("calling", "calls", "log_reading", "administration", "staging", "messaging", "consumer")
"""Modules of the client whose plain half is made."""
VIEWS = ("info", "tracing")
"""Modules of views with functions that are operations."""
GATHERING = ("spreading", "gathering")
"""The modules of operations on several shards; what is there is not asked of one."""
PLAIN_WORDS = {
    r"\basync (?=def|for|with)": "",
    r"\bawait ": "",
    r"\b__a(?=enter__|exit__|iter__)": "__",
    r"\b__anext__\b": "__next__",
    r"\bStopAsyncIteration\b": "StopIteration",
    r"\bAsync(?=Iterator\b)": "",
    r"\basyncio\.sleep\b": "time.sleep",
    r"\basyncio\.Lock\b": "threading.Lock",
    r"\basyncio\.Future\b": "concurrent.futures.Future",
    r"^import asyncio$": "import concurrent.futures\nimport threading\nimport time",
    r"\bpenstock\.client\.publisher import Publisher\b": "penstock.client.outbox import Outbox",
    r"\bpenstock\.client\.merged import AnyRemote\b": "penstock.client.waited import WaitedConsumer",
    r"\bPublisher\b": "Outbox",
    r"\bAnyRemote\b": "WaitedConsumer",
    r"\bAsyncReceived\b": "ClientDelivery",
    r"\bAsync(?=Client|Caller)": "",
    rf"\bpenstock\.client\.(?=(?:{'|'.join(AWAITED)})\b)": "penstock.client.sync_",
    r"\bfor asyncio\b": "in plain calls",
}
"""What stands in an awaited module, and what stands for it in the plain one."""
TIDYING = "F401,I,UP028"  # imports that are used, in their order; `yield from` where that can be


def faces() -> Iterator[tuple[Path, str]]:
    """Every file that is made, with what belongs there."""
    embedded, awaited_calls = SOURCE / "embedded/administration.py", SOURCE / "aio/administration.py"
    client_calls = SOURCE / "client/calls.py"
    yield embedded, _tidied(embedded, _embedded_broker())
    yield awaited_calls, _tidied(awaited_calls, _awaited_broker())
    made = _tidied(client_calls, _client_calls())
    yield client_calls, made
    for name in AWAITED:
        awaited, plain = SOURCE / f"client/{name}.py", SOURCE / f"client/sync_{name}.py"
        yield plain, _tidied(plain, _plain(awaited, made if awaited == client_calls else awaited.read_text()))


# From the table.


def _embedded_broker() -> str:
    """What the embedded broker hands to a shard, or to all: the operations that have their words in the table."""
    homes = dict(_homes())

    def body(operation: Operation) -> str:
        finding = "_shard_with" if operation.route == "identity" else "_shard_of"
        asked = "self._open_shards()" if homes[operation.name] in GATHERING else f"self.{finding}({operation.route})"
        given = [asked, *_arguments(operation, by_name=False)]
        returned = "" if operation.signature.return_annotation == "None" else "return "
        return f"{returned}{homes[operation.name]}.{operation.name}({', '.join(given)})"

    declared = [operation for operation in _called(BrokerOperations) if operation.summary]
    of_shards = {home for home in homes.values() if home not in (*VIEWS, *GATHERING)}
    methods = "".join(_method(operation, body, "def") for operation in declared)
    return f'''{_made_from("api/operations.py")}
"""The operations of `penstock.Broker` that its shards do, or that are answers about them."""

from __future__ import annotations

{_imports()}
from penstock.cluster import {", ".join(sorted(GATHERING))}
from penstock.cluster.shards import Shards
from penstock.shard.operations import {", ".join(sorted(of_shards))}
from penstock.shard.shard import Shard
from penstock.views import {", ".join(VIEWS)}


class Administration:
    """The operations that people and tools use to look after a broker."""

    shards: Shards

{methods}
    def _open_shards(self) -> Shards:
        self.shards.check_open()
        return self.shards

    def _shard_of(self, topic: str) -> Shard:
        return self._open_shards().of(topic)

    def _shard_with(self, identity: MessageId | str) -> Shard:
        return self._open_shards().of_message(identity)
'''


def _homes() -> Iterator[tuple[str, str]]:
    """The operations that a function of a shard is for, and its module; functions of all shards come last."""
    modules = [*(SOURCE / "shard/operations").glob("*.py"), *(SOURCE / f"views/{name}.py" for name in VIEWS)]
    modules += [SOURCE / f"cluster/{name}.py" for name in GATHERING]
    for path in modules:
        for one in ast.parse(path.read_text()).body:
            if (
                isinstance(one, ast.FunctionDef)
                and one.name in OPERATIONS
                and one.args.args[0].arg in ("shard", "shards")
            ):
                yield one.name, path.stem


def _awaited_broker() -> str:
    """The awaited face of the embedded broker, as far as a thread is all that it needs."""

    def body(operation: Operation) -> str:
        method, given = f"self._broker.{operation.name}", _arguments(operation, by_name=False)
        if operation.waits is Waits.NOT:
            return f"return {method}({', '.join(given)})"
        returned = "" if operation.signature.return_annotation == "None" else "return "
        return f"{returned}await asyncio.to_thread({', '.join([method, *given])})"

    methods = _methods(body, [BrokerOperations], ["aio/broker.py"])
    return f'''{_made_from("api/operations.py")}
"""The operations of `penstock.Broker` that a thread can wait for, awaited."""

from __future__ import annotations

import asyncio
{_imports()}

if TYPE_CHECKING:
    from penstock.embedded.broker import Broker


class AsyncAdministration:
    """Each operation that may wait runs in a worker thread; functions that it is given are called there."""

    if TYPE_CHECKING:

        @property
        def _broker(self) -> Broker: ...

{methods}'''


def _client_calls() -> str:
    """The calls of a client that hand arguments to a server, and its result back."""
    unions: list[str] = []  # which are no `type[...]`

    def body(operation: Operation) -> str:
        result = str(operation.signature.return_annotation)
        if "|" in result:
            unions.append(f"_{operation.name.upper()}: Any = {result}\n")
            result = f"_{operation.name.upper()}"
        given = [repr(operation.name), result, *_arguments(operation, by_name=True)]
        call = f"await self.call({', '.join(given)})"
        if result == "None":
            return call
        if result.startswith("_"):
            return f"found: {operation.signature.return_annotation} = {call}\n        return found"
        return f"return {call}"

    by_hand = [f"client/{name}.py" for name in AWAITED if name not in ("calls", "consumer")]
    methods = _methods(body, [BrokerOperations, PipelineOperations, ProcessOperations], by_hand)
    return f'''{_made_from("api/operations.py")}
"""The operations that a client only has to ask its server for; for asyncio."""

from __future__ import annotations

{_imports()}
from penstock.client.calling import AsyncCaller


class AsyncClientCalls(AsyncCaller):
    """The same operations as `penstock.Broker` has."""

{methods}

{"".join(unions)}'''


def _methods(body: Callable[[Operation], str], interfaces: list[type], by_hand: list[str]) -> str:
    """The methods of these interfaces that are called by name, without those that are written in one of these files."""
    written = {
        one.name
        for path in by_hand
        for one in ast.walk(ast.parse((SOURCE / path).read_text()))
        if isinstance(one, ast.AsyncFunctionDef | ast.FunctionDef)
    }
    made = [operation for interface in interfaces for operation in _called(interface) if operation.name not in written]
    return "".join(_method(operation, body) for operation in made)


def _called(interface: type) -> list[Operation]:
    """The operations of an interface that are called by name."""
    return [OPERATIONS[name] for name in vars(interface) if name in OPERATIONS and OPERATIONS[name].called]


def _method(operation: Operation, body: Callable[[Operation], str], definition: str = "async def") -> str:
    signature = operation.signature
    parameters, starred = ["self"], False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not starred:
            parameters.append("*")
            starred = True
        default = "" if one.default is one.empty else f" = {one.default!r}"
        parameters.append(f"{'**' if one.kind is one.VAR_KEYWORD else ''}{one.name}: {one.annotation}{default}")
    words = operation.summary or _words_of_broker()[operation.name]
    words = "\n".join(line and f"        {line}" for line in words.splitlines()).strip()
    end = "\n        " if "\n" in words else ""
    return f'''    {definition} {operation.name}({", ".join(parameters)}) -> {signature.return_annotation}:
        """{words}{end}"""
        {body(operation)}

'''


@functools.cache
def _words_of_broker() -> dict[str, str]:
    """What the methods of the broker that are written by hand say of themselves."""
    broker = ast.walk(ast.parse((SOURCE / "embedded/broker.py").read_text()))
    return {one.name: ast.get_docstring(one) or "" for one in broker if isinstance(one, ast.FunctionDef)}


def _arguments(operation: Operation, *, by_name: bool) -> list[str]:
    """What a method was given, handed on."""
    given = []
    for one in operation.signature.parameters.values():
        if one.kind is one.VAR_KEYWORD:
            given.append(f"**{one.name}")
        else:
            given.append(f"{one.name}={one.name}" if by_name or one.kind is one.KEYWORD_ONLY else one.name)
    return given


def _imports() -> str:
    """What the table imports: its types are named there as they are here."""
    module = ast.parse(inspect.getsource(table))
    found = [ast.unparse(one) for one in module.body if isinstance(one, ast.ImportFrom) and one.module != "__future__"]
    return "\n".join(found)


# From the awaited half of the client.


def _plain(awaited: Path, text: str) -> str:
    for word, plain in PLAIN_WORDS.items():
        text = re.sub(word, plain, text, flags=re.MULTILINE)
    text = re.sub(r"\A# .*\n", "", text)
    return f"{_made_from(str(awaited.relative_to(SOURCE)))}\n{text}"


def _made_from(source: str) -> str:
    return f"# Made from {source} by tools/faces.py: change that, and run `make faces`."


def _tidied(path: Path, text: str) -> str:
    """Laid out as ruff does it."""
    for command in (["check", "--select", TIDYING, "--fix", "--unsafe-fixes", "--exit-zero", "--quiet"], ["format"]):
        arguments = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(arguments, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def main() -> None:
    """Write the files, or say which are not current."""
    stale = [(path, text) for path, text in faces() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit("".join(f"{path.relative_to(ROOT)} is not current: run `make faces`\n" for path, _ in stale) or 0)
    for path, text in stale:
        path.write_text(text)


if __name__ == "__main__":
    main()
