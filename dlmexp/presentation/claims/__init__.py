"""What the paper says in words, checked on the tidy table: 22 claims, each with a verdict."""
