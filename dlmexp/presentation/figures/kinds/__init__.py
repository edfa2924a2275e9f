"""The kinds of panels, with a module for each.

The module of a kind has two functions. `measure` returns the numbers of one line, computed from
rows of the tidy table. `draw` draws all panels that share a scale. The module `kind` lists all
kinds with their properties.
"""
