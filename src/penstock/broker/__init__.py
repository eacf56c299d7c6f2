"""The broker: joins the journal, the segments and the state into operations.

`engine` is the whole of it without threads; `background` adds the threads; `embedded` and `aio` are its faces.
"""
