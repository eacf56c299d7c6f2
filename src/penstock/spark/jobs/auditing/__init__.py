"""What an audit looks at: files byte by byte, messages by sums of hashes, groups by a fold of the events in SQL."""
