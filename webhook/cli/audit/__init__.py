"""`gpugate audit`."""
