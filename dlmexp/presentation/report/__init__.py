"""Write one HTML page about a results folder, which can be sent around and needs no network."""
