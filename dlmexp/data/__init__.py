"""Datasets: raw files, checksums, parsing, splits and normalisation. Knows nothing of Gaussian processes or Hydra."""
