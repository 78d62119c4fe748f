"""The local page of `gpugate ui`: evaluation of texts, case files, and an application that serves them."""
