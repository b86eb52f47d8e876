"""An exported tower in onnxruntime, run on one thread."""

from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from tower.errors import BundleError


class Session:
    """A tower as ONNX with one output of float32 [B, D].

    `name` is the file that a fault is told with. Raises BundleError when `model` can't be run.
    """

    def __init__(self, model: bytes, name: str, output: str) -> None:
        self._name, self._output = name, output
        options = onnxruntime.SessionOptions()
        # One query is far too small to share between threads; many queries run beside each other.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common base
            raise BundleError(f"{name} can't be run ({_first_line(error)}); export it again") from None
        self._session = session
        # What `session.run` calls after it has looked at the names once more, which costs a microsecond.
        self._run = session._sess.run
        self._outputs = [output]
        self.shapes: dict[str, list[Any]] = {entry.name: entry.shape for entry in session.get_inputs()}

    def check(self, inputs: set[str]) -> None:
        """Raise BundleError when the tower reads other inputs than these, or has no such output."""
        if set(self.shapes) != inputs:
            raise BundleError(
                f"{self._name} reads {sorted(self.shapes)}, but its bundle gives {sorted(inputs)}", "parts"
            )
        if self._output not in {entry.name for entry in self._session.get_outputs()}:
            raise BundleError(
                f"{self._name} has no output {self._output!r}; export the bundle again", "parts"
            )

    def run(self, inputs: dict[str, NDArray[Any]], shape: tuple[int, int]) -> NDArray[np.float32]:
        """Return the tower's vectors. Raises BundleError when it can't be run or their shape is another."""
        try:
            vectors: NDArray[np.float32] = self._run(self._outputs, inputs, None)[0]
        except Exception as error:  # onnxruntime's own errors have no common base
            raise BundleError(f"{self._name} can't be run ({_first_line(error)})") from None
        if vectors.shape != shape:
            raise BundleError(f"{self._name} gives vectors of shape {vectors.shape}; export the bundle again")
        return vectors


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
