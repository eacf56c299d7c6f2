"""Pure state machines of delivery: commands and time in, events out; no clock, no disk."""
