"""One HTML page about a results folder, to send to a colleague; it needs no network."""
