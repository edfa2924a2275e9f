"""What the paper says in words, checked against records: 22 claims, each with a verdict and the figures behind it."""
