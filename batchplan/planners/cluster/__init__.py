"""`cluster`: balanced k-means."""
