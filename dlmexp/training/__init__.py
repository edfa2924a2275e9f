"""Trains a batch of models: Adam, minibatches, convergence, CUDA graphs. Knows nothing of experiments and records."""
