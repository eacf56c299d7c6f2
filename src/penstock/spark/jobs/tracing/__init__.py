"""The parts of a trace report: what tasks find out about messages, how it is combined, and the page."""
