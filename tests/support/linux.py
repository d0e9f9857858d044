"""The mark of tests that need Linux: files such as ``/dev/full``, or names that its disks take."""

import sys

import pytest

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
