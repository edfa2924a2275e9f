"""The tidy table as pictures, verdicts and pages."""
