"""`bcs` and `scb`: greedy batches of high loss."""
