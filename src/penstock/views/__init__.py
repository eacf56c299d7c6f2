"""Answers about a broker: pages of topics and groups, messages and traces found, figures, statistics.

Nothing here changes anything, and nothing of the broker needs it. How far a group is, is `penstock.delivery.standing`.

| file | what it does |
| --- | --- |
| `info.py`, `listing.py` | topics, also as plain queues, and the broker; topics and groups in pages |
| `searching.py`, `tracing.py`, `trace_search.py` | messages found; the trace of one message; traces found |
| `changes.py` | what is new in all logs since the last look |
| `figures.py`, `stats.py`, `ranking.py` | the state in numbers; statistics; the largest and the furthest behind |
| `snapshot.py` | a directory read without a broker, and without changing it |
"""
