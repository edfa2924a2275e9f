"""What the paper says in words, as tests on the tidy table, each claim with a verdict."""
