"""dlmexp: Direct Loss Minimization for Sparse Gaussian Processes, reproduced whole."""

__version__ = "0.2.0"
