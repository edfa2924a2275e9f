"""Rank methods over data sets on leaderboards, with tests of which methods differ."""
