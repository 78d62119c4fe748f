"""`gpugate matrix`."""
