"""Speed, memory and agreement, measured side by side: `python -m scripts.benchmark core | gpu |
models | agreement`; candidates for the default model: `defaults`. Measured tables, each with its
command and machine, are in docs/PERFORMANCE.md."""
