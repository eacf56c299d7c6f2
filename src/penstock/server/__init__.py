"""The server: a broker behind listeners, and what it needs to run unattended."""
