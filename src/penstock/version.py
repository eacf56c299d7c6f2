"""The version, where every layer can read it without loading anything else."""

__version__ = "0.1.0"
