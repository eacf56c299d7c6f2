"""Metrics of a server: for Prometheus, and live for the dashboard."""
