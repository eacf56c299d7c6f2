"""What happens in a shard, counted where it happens."""
