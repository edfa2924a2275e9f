"""Test what the paper says in words: each claim becomes tests on the tidy table, and a verdict."""
