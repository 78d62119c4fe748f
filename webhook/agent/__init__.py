"""The node agent: what NVML says of a node's driver and GPUs, as labels and as a diagnosis."""
