"""The listener of the native protocol: frames in, broker operations, frames out."""
