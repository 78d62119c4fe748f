"""Certificate authority (CA), serving certificates and their rotation. Independent of rules."""
