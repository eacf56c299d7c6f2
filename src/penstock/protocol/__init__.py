"""The native protocol, pure: bytes in, commands out. Server and client share it (docs/reference/protocol.md)."""
