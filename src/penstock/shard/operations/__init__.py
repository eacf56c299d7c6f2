"""What faces and ports ask of a shard, one feature a file."""
