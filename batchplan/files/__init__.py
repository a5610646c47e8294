"""Reading, naming and atomically replacing files."""
