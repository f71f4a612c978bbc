"""What layers compute besides products with weights and attention: in plain PyTorch, or by a library's kernels."""
