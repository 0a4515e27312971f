"""What pyproject.toml cannot say: the cffi module, and the tag of its wheel."""

import sys
import sysconfig

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

LIMITED_API = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


class Wheel(bdist_wheel):
    """One abi3 wheel for every CPython with a GIL; the others get a wheel of their own."""

    def finalize_options(self) -> None:
        if LIMITED_API:
            self.py_limited_api = "cp311"
        super().finalize_options()


setup(cffi_modules=["ffi_build.py:ffibuilder"], cmdclass={"bdist_wheel": Wheel})
