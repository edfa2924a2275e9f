"""Pictures from the tidy table: nothing here trains anything or loads torch.

Read `panels` (what a figure is made of), `declared` (all of ours), `numbers` (from rows to points),
`kinds` (how each kind of panel measures and draws), `layout` (a whole picture), then `drawn`,
`notes` and `plot` (what `dlmexp plot` does with them).
"""
