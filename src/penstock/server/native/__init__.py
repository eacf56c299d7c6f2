"""The listener of the native protocol: frames in, broker operations, frames out.

| file | what it does |
| --- | --- |
| `listener.py`, `connection.py`, `session.py` | the port; bytes and replies of a connection; its requests |
| `singles.py` | single messages of all connections, published together |
| `consumers.py`, `delivering.py` | the consumers of a connection; messages on their way to one of them |
| `operations.py`, `pages.py` | calls by name; reading a log page by page, and what fits into a page |
"""
