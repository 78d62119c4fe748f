"""The decision: what a pod asks for, what the rules say of it, what to add, what to refuse.

Pure: no Flask, no Kubernetes client, no sockets, no clock, no logging. Data passes through the modules in
this order: `source` and `load` (rule files), `policy` (compiled rules), `pod` (the request's pod),
`resources`, `injection` (one per kind of rule), `patch` (edits as RFC 6902), `decide` (where they meet).
"""
