"""What things are: messages, batches, events, configuration, errors. No I/O happens here."""
