"""Who may do what: tokens, scopes, limits of the rate, and TLS."""
