"""Where prompts, pairs and answers come from."""
