"""Losses: `offline_algorithm` on fixed data, `online_algorithm` on the policy's own samples."""
