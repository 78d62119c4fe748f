"""What the terminal shows: tables, colours, and the words of each language."""
