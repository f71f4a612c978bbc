"""The only tensors of `core`: keys, values and recurrent states, on the device and in host memory."""
