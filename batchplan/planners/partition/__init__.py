"""`partition`: parts of a graph of neighbours."""
