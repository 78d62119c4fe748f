"""The commands, one thin module each."""
