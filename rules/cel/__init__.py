"""CEL expressions: compilation, cost limits, evaluation."""
