"""Many shards: which are there, who has them, and answers that are put together from several."""
