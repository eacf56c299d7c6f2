"""The broker inside your own process: what `penstock.open` gives, in plain calls."""
