"""Telemetry of requests: spans, metrics, records and the log."""
