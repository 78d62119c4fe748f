"""The trust: certificate authority and serving certificates. Knows nothing of rules."""
