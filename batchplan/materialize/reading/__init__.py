"""Reading the rows of a data set in order, a few megabytes at a time."""
