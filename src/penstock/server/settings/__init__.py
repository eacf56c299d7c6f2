"""How the server's configuration is read: its options, their names in every source, and what is wrong with them."""
