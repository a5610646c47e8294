"""What each step of planning costs, beside the matrix product alone."""
