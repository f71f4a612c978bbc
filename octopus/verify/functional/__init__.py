"""Audits that run the model: what a mask, a kernel or a backward pass really does, whatever was declared."""
