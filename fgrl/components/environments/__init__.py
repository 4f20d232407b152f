"""What a policy talks to."""
