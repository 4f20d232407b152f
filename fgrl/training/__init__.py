"""Training: Lightning modules, strategies, steps, alarms."""
