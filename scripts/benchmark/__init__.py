"""Speed, memory and agreement, measured side by side: `python -m scripts.benchmark core | gpu | models | agreement`.

The last measured tables are in docs/PERFORMANCE.md, each with its command and machine.
"""
