"""Output of commands: tables, reports, images."""
