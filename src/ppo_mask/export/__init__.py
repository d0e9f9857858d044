"""Export: policies for programs without JAX.

In: a policy and its environment. Out: an ONNX file for onnxruntime, which other languages have,
too; or the arrays as an ``.npz`` for NumPy.
"""

from ._export import export_policy

__all__ = ["export_policy"]
