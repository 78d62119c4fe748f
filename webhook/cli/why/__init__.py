"""`gpugate why`."""
