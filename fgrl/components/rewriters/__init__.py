"""What rewrites responses step by step, as their highlights ask."""
