"""Reports: explanation and trace of a decision, compatibility matrix, export."""
