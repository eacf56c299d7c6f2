"""CSV, JSON lines and Parquet files, read and written in tasks as columns."""
