"""The server: a broker behind listeners, and what it needs to run unattended.

All ports share one event loop. What they send in one iteration of it is committed together, and the replies go out
after the commit. Work that may block runs in threads.

| file | what it does |
| --- | --- |
| `server.py`, `config.py`, `logs.py` | from start to the last reply, signals; options from four sources; the log |
| `services.py`, `operations.py` | what all ports share; operations by name, with the scope that each needs |
| `port.py`, `descriptors.py`, `deadlines.py` | connections, how many there may be, and how long clients may take |
| `commits.py`, `workers.py` | replies that wait for the disk; requests that may block |
| `pipelines.py`, `pipeline_history.py` | what pipelines reported, in memory |
"""
