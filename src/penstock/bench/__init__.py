"""Measuring a server from outside: the load, a baseline measured beside it, and a check of what was read back."""
