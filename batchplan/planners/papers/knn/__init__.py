"""`knn`: rows and their nearest rows."""
