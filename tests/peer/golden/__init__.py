"""Requests whose answers by the Python service were recorded, sent to ours and compared."""
