"""What the paper says in words, checked against the tidy table: 22 claims, each with a verdict."""
