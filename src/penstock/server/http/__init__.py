"""The HTTP port: JSON for everybody, metrics, health and the dashboard."""
