"""The guard against false negatives, as the metrics judge it, and losses of what it allows."""
