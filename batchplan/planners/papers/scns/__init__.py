"""`scns`: semantically conditioned negatives."""
