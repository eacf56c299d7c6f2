"""Measuring a server from outside: the load, the baseline beside it, and the check of what was read back."""
