"""The planners of papers, one folder each, with all that serves them alone."""
