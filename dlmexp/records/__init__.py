"""Records on disk: the store, packs, manifests, selection of beta, tables, and reading it all back. Does not load torch."""
