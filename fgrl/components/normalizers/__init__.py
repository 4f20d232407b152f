"""How segment rewards are centred and scaled. Importing this package registers the normalizers."""

from fgrl.components.normalizers import constant, location, none
