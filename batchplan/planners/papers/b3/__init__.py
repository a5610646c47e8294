"""`b3`: clusters of rows that are near, but not nearest."""
