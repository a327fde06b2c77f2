"""What messages of sources and sinks tell a user to do: the same words for the same remedy."""

from __future__ import annotations

RETRY = "check the table, and run again"
ANEW = "start with a new store and empty tables to write to"
KEPT = "what was committed is kept: run again when this is corrected"
