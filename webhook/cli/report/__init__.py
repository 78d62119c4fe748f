"""Reports of audit, lint, preview and rule tests, in each format."""
