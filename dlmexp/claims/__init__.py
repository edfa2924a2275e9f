"""What the paper says in words, checked against records: 19 claims, each with a verdict and the figures behind it."""
