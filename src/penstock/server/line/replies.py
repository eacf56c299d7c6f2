"""What the text protocol answers: each reply is one line, but those that end with a line that begins with END."""

from __future__ import annotations

import json
import re

_UNSHOWABLE = re.compile(r"[\x00-\x08\x0a-\x1f\udc80-\udcff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_ERROR_CHARACTERS = 1000

ERROR, END = b"ERROR: ", b"END "
"""How the line begins that tells why something was not done, and the last one of several."""
OK = b"OK\n"
ACK_OK = b"ACK_OK\n"
PONG = b"PONG\n"
BYE = b"BYE\n"
NOTHING = b"No messages in queue\n"
HELP = b"""\
PRODUCE <topic> <partition> <message>    publish the rest of the line; OK once it is on disk
CONSUME <topic> <partition>              the next message: <id> <body>, or: No messages in queue
CONSUME <topic> <partition> ALL          all that are ready, one a line; the last line is END <count>
ACK <topic> <partition> <id>             it is done; what is not acked comes again
{"priority": 0, "data": "text or any JSON", "track": "<topic>"}
                                         publish with a priority: 0 comes first, 255 last
AUTH <token>                             say who you are, if the server asks for it
PING                                     PONG
QUIT                                     end the connection; so does closing it
Commands are understood in any case. What is wrong is answered with a line ERROR: and the reason.
For example: PRODUCE user-signups 0 new user: alex
END
"""


def message_line(offset: int, value: bytes) -> bytes:
    r"""A message: its id, and its body as it is, or, where that would break the line, as a JSON string.

    A body that begins with a quote and has a backslash in it is a JSON string: so one that is just like that by
    itself is quoted too. Bytes that are no UTF-8 are \udc80 to \udcff, as Python writes them (PEP 383).
    """
    text = value.decode("utf-8", "surrogateescape")
    if _UNSHOWABLE.search(text) or (text.startswith('"') and "\\" in text):
        value = json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return b"%d %b\n" % (offset, value)


def end_line(count: int) -> bytes:
    """The end of several messages."""
    return END + b"%d\n" % count


def error_line(error: BaseException) -> bytes:
    """Why something was not done."""
    text = _CONTROL.sub(" ", str(error)) or type(error).__name__
    shown = text if len(text) <= _ERROR_CHARACTERS else f"{text[:_ERROR_CHARACTERS]}…"
    return ERROR + f"{shown}\n".encode("utf-8", "replace")
