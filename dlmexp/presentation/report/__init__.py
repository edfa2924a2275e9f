"""One HTML page about one results folder, to send to a colleague: no network, no scripts from
elsewhere."""
