"""Where bytes are kept: one small interface, the file system behind it in production, and nothing else."""

from penstock.storage.durable import put_file, read_file
from penstock.storage.files import FileStorage
from penstock.storage.interface import File, Storage

__all__ = ["File", "FileStorage", "Storage", "put_file", "read_file"]
