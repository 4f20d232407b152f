"""What a recipe's stages may be."""
