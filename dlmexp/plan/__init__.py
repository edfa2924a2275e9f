"""From config to cells to batches: composing, checking, the beta grid, keys."""
