"""Leaderboards: methods ranked over data sets, with tests of what separates them."""
