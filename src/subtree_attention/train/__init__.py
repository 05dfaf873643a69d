"""Training: configuration, recipes, the step, and the loop."""
