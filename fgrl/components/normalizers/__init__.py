"""How segment rewards are centred and scaled."""
