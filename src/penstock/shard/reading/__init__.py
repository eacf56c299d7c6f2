"""Reading the log: from segments and journal, by offset, by time, into indexes."""
