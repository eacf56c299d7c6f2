"""Who may do what: tokens, scopes, limits of the rate, and TLS.

| file | what it does |
| --- | --- |
| `tokens.py`, `access.py`, `principal.py` | the token file; who is let in, and for how long; what they may do |
| `starting.py`, `tls.py`, `rates.py` | where a server may listen; certificates; requests per second |
"""
