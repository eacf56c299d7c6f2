"""The HTTP port: JSON for everybody, metrics, health and the dashboard.

Every request passes `front.py`. Publishing goes straight to the broker; everything else goes through Litestar.

| file | what it does |
| --- | --- |
| `listener.py`, `connection.py`, `intake.py` | the port, its connections, and the limits of what they send |
| `front.py`, `caller.py`, `browsers.py` | what every request passes; who sent it; what web pages may send |
| `publishing.py`, `express.py`, `bodies.py` | publishing, from bytes to bytes; messages as JSON |
| `app.py`, `failures.py` | the application; errors as status codes. The routes are in `routes` |
| `members.py`, `finishing.py` | consumers without a connection; finishing messages by their receipts |
| `elsewhere.py`, `destinations.py` | which process a request is for |
| `forwarding.py`, `splitting.py`, `express_relay.py`, `websocket_relay.py` | what other processes answer |
| `gathering.py`, `merging.py`, `live.py`, `events.py` | what all processes answer together |
| `description.py`, `documenting.py`, `examples.py`, `vocabulary.py` | the OpenAPI description |
"""
