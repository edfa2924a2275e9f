"""The paper's figures from records alone: nothing here trains anything or loads torch."""
