"""Rule tests on the command line: runner, drafts, templates."""
