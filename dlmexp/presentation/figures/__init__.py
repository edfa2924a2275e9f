"""Pictures from the tidy table: nothing here trains anything or loads torch.

Read `panels` (what a figure is made of), `declared` (all of ours), `numbers` (from rows to points),
`axes` and `grid` (from points to a picture), then `plot` (what `dlmexp plot` does with them)."""
