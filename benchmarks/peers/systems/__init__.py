"""The systems that are compared: one file for each, with how it is started, its bytes, its client and its counts."""
