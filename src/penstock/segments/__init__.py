"""Settled data: immutable Parquet files, one partition each, that any Parquet reader understands.

Everything that needs pyarrow is imported by the modules here, so that `import penstock` does without it.
"""
