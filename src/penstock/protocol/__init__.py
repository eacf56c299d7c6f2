"""The native protocol, pure: bytes in, commands out. Server and client share it (docs/reference/protocol.md).

| file | what it does |
| --- | --- |
| `frames.py` | headers, and finding frames in what arrives |
| `publishing.py`, `consuming.py`, `session.py` | bodies: batches; deliveries; handshake, reading, calls |
| `decoding.py` | decoding, and what is known of a body before that |
| `failures.py` | errors and their numbers |
"""
