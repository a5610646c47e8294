"""The pictures of a report, one file each."""
