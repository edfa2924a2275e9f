"""The kinds of panels, with a module for each.

The module of a kind has two functions. `measure` computes the numbers of one line from rows of the
tidy table, and `draw` draws panels that share a scale. The module `kind` lists all kinds with their
properties.
"""
