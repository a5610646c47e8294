"""`rwr`: random walks with restart."""
