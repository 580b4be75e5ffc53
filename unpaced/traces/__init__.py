"""OpenTelemetry spans of requests. Imported only with --traces: off, they cost nothing."""
