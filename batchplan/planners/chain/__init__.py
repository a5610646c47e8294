"""`chain`: each row by the most similar row that is left."""
