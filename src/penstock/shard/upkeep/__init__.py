"""What a shard does in the background: settling, retention, tidying, burying the dead."""
