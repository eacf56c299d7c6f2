"""The text port: lines that people type and small devices send."""
