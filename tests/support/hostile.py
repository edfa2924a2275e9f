"""Names that would like to be more than text."""

NAME = "<script>document.title='owned'<script>"
REASON = "<img src=x onerror=\"document.title='owned'\"> & NaN"
