"""Dynamic Resource Allocation: devices, device classes and claims of `resource.k8s.io`."""
