"""Message traces as OpenTelemetry spans, sent to a collector (extra `otel`)."""
