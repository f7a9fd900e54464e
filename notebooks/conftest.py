"""Kernels of notebooks that are tested at once talk through files: ports of two of them may collide."""

import os
import tempfile

from jupyter_client.connect import ConnectionFileMixin

ConnectionFileMixin.transport.default_value = "ipc"
os.environ["JUPYTER_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="kernels-")  # a socket's name has at most 107 characters
