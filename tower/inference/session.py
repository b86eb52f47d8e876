"""An exported tower in onnxruntime, run on one thread."""

from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from turret.tower.errors import BundleError
from turret.tower.hostile import check_onnx

# The working memory of all towers of a process beside their weights: a thousand times that of one with short
# histories, and enough for attention over ten thousand steps.
WORKING_BYTES = 1 << 30
_OPTIONS = {
    # A second line of defence behind `check_onnx`. This is no folder, so it holds no file; the default is the
    # working directory.
    "session.model_external_initializers_file_folder_path": "/dev/null",
    "session.load_model_format": "ONNX",
    # Memory comes from the one pool that is bounded; weights do not count in it.
    "session.use_env_allocators": "1",
    "session.use_device_allocator_for_initializers": "1",
}
_BOUNDING = Lock()


class Session:
    """A tower as ONNX with one output of float32 [B, D].

    `name` is the file that a fault is told with. Raises BundleError when `model` can't be run, or could do
    anything but compute (see `tower.hostile`).
    """

    def __init__(self, model: bytes, name: str, output: str) -> None:
        self._name, self._output = name, output
        check_onnx(model, name)
        with _BOUNDING:
            _bound_memory()
        options = onnxruntime.SessionOptions()
        # One query is far too small to share between threads; many queries run beside each other.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # errors are raised, and reported once
        for key, value in _OPTIONS.items():
            options.add_session_config_entry(key, value)
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common base
            raise BundleError(f"{name} can't be run ({_first_line(error)}); export it again") from None
        self._session = session
        # `session.run` without its check of the names, which costs a microsecond.
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
        """Return the tower's vectors.

        Raises BundleError when it can't be run, or their shape is another.
        """
        try:
            vectors: NDArray[np.float32] = self._run(self._outputs, inputs, None)[0]
        except Exception as error:  # onnxruntime's own errors have no common base
            raise BundleError(f"{self._name} can't be run ({_first_line(error)})") from None
        if vectors.shape != shape:
            raise BundleError(f"{self._name} gives vectors of shape {vectors.shape}; export the bundle again")
        return vectors


@cache
def _bound_memory() -> None:
    """Give ONNX Runtime, once a process, the pool that its sessions take working memory from."""
    kind, purpose = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
    memory = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, purpose)
    as_asked = 1  # rather than doubling
    settings = onnxruntime.OrtArenaCfg({"max_mem": WORKING_BYTES, "arena_extend_strategy": as_asked})
    onnxruntime.create_and_register_allocator(memory, settings)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
