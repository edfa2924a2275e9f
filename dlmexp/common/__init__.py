"""What every layer uses: errors, console, paths, atomic files, readers of untrusted files."""
