"""Kinds of panels, a module for each: from rows of the tidy table to numbers, and to a picture.

`kind` lists them with the facts that the rest of the program needs to know. A module of a kind has
two functions: `measure` makes the numbers of one line, `draw` draws panels that share a scale.
"""
