"""Rule tests of the command line: runner, drafts, templates."""
