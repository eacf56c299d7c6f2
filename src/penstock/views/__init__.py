"""Answers about a broker: pages of topics and groups, messages and traces found, figures, statistics.

Nothing here changes anything, and nothing of the broker needs it. How far a group is, is `penstock.delivery.standing`.

| file | what it does |
| --- | --- |
| `info.py`, `listing.py`, `queues.py` | topics and groups, one or in pages; a topic as a plain queue |
| `searching.py`, `tracing.py`, `trace_search.py` | messages found; the trace of one message; traces found |
| `logs.py`, `changes.py` | one log, found to be read in pages; what is new in all logs since the last look |
| `figures.py`, `stats.py`, `ranking.py` | the state in numbers; statistics; the largest and the furthest behind |
| `snapshot.py` | a directory read without a broker, and without changing it |
"""
