"""Losses: of plans, of all rows and of random plans."""
