"""Where bytes are kept: one small interface, the file system behind it in production, and nothing else."""

from penstock.storage.files import FileStorage
from penstock.storage.interface import File, Storage, put_file, read_file

__all__ = ["File", "FileStorage", "Storage", "put_file", "read_file"]
