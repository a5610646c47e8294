"""What planners share."""
