"""What a shard does in the background: settling, retention, tidying, dead-lettering."""
