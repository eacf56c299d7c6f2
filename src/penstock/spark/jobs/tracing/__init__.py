"""What a trace report is made of: what tasks find out about messages, how that is put together, and the page."""
