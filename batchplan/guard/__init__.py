"""Which rows must not share a batch, as they are likely false negatives of each other."""
