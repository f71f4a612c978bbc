"""Our own kernels: attention over a DAG in place, where every stored key is read once for all rows that see it."""
