"""Files as such: reading them, naming them, and replacing them atomically."""
