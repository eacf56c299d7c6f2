"""The text port: lines that people type and small devices send.

| file | what it does |
| --- | --- |
| `listener.py`, `connection.py`, `session.py` | the port; lines and replies of a connection; what they do |
| `relaying.py` | lines about topics of other processes |
| `lines.py`, `replies.py`, `consumers.py` | what a line says; how a body is shown; leases of a connection |
"""
