"""Messages that wait, seen by nobody, to be published together, exactly once."""
