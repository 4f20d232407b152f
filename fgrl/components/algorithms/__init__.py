"""Training algorithms: `offline_algorithm` for fixed data, `online_algorithm` for samples of the policy itself."""
