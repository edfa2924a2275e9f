"""Measures speed, memory and agreement, for `dlmexp benchmark`. It may import every other package; none imports it."""
