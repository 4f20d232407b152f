"""What vLLM's own processes import. The folder is put on their path: nothing here may import fgrl."""
