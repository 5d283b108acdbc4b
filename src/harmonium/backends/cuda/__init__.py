"""A GPU's matrix units: Triton kernels, and what calls them with tensors."""
