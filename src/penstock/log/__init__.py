"""The log's meaning, pure: what is written, the state that it makes, and the one place that makes it.

No disk, no threads, no clock. Imports of the parts only: nothing here starts anything.
"""
