"""Code of several planners: options, drafts, the last steps of a plan, and batches of anchors."""
