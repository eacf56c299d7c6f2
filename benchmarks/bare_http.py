"""An HTTP server that reads the same JSON and answers the same, and does nothing: what HTTP itself costs here."""

from __future__ import annotations

import socket
import sys
from typing import Any

import msgspec
import uvicorn
import uvloop

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_REPLY = b'{"id":"t/0/0","topic":"t","partition":0,"offset":0,"priority":128,"delayed":false,"deliver_at":null}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(_REPLY)).encode())]


async def app(scope: Any, receive: Any, send: Any) -> None:
    event = await receive()
    body = event["body"]
    while event.get("more_body"):
        event = await receive()
        body += event["body"]
    _decode(body)
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _REPLY})


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, http="httptools", lifespan="off", log_level="error", access_log=False)
    uvloop.run(uvicorn.Server(config).serve(sockets=[listening]))


if __name__ == "__main__":
    main()
