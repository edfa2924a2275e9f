"""Records on disk: the store, packs, manifests, selection of beta, tables, and reading them back. Never loads torch."""
