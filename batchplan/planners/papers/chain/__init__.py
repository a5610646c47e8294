"""`chain`: each row is followed by the most similar row that is left."""
