"""Numbers in print beside ours."""
