#!/usr/bin/env python3
"""Compiles the kernels of client/examples/push with NVRTC for Hopper, in each type of their manifests. Needs no GPU.

    push_compile_test.py SOURCE_FOLDER

Exit status 77: skipped, there is no NVRTC here, or no cuda_fp16.h.
"""

import ctypes
import json
import pathlib
import re
import sys
import unittest

SKIPPED = 77
LIBRARIES = [folder + name for name in ("libnvrtc.so.13", "libnvrtc.so.12")
             for folder in ("", "/usr/local/cuda/lib64/")]
HEADERS = [pathlib.Path(folder) for folder in ("/usr/local/cuda/include", "/usr/local/include", "/usr/include")]
TYPES = {"float32": ("float", ""), "float16": ("__half", "cuda_fp16.h"), "bfloat16": ("__nv_bfloat16", "cuda_bf16.h")}


def load():
    """(NVRTC, the folder of CUDA's headers). Ends the program where one of them is missing."""
    folder = next((each for each in HEADERS if (each / "cuda_fp16.h").exists()), None)
    missing = f"no cuda_fp16.h in {' '.join(map(str, HEADERS))}"
    for name in LIBRARIES if folder else []:
        try:
            return ctypes.CDLL(name), folder
        except OSError as error:
            missing = error
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)


def compiled(kind, source, options):
    """(code, the compiler's log); the code, "PTX" or "CUBIN", is None if NVRTC refuses the source."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    NVRTC.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"example.cu", 0, None, None)
    arguments = (ctypes.c_char_p * len(options))(*[each.encode() for each in options])
    failed = NVRTC.nvrtcCompileProgram(program, len(options), arguments)

    def read(of):
        getattr(NVRTC, f"nvrtcGet{of}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(NVRTC, f"nvrtcGet{of}")(program, buffer)
        return buffer.raw

    log, code = read("ProgramLog").decode(), None if failed else read(kind)
    NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    return code, log.strip("\0\n")


class PushCompileTest(unittest.TestCase):
    def each(self, kind, architecture):
        """(name, manifest, code) of every example in every type. There are no warnings either."""
        files = sorted(FOLDER.glob("*.cu"))
        self.assertGreater(len(files), 5)
        for path in files:
            source = path.read_text(encoding="utf-8")
            comment = re.match(r"// warpcall-kernel (\{\n(?://.*\n)*?// \})\n", source)[1]
            manifest = json.loads(re.sub(r"^//", "", comment, flags=re.M))
            for name in manifest["types"]:
                element, header = TYPES[name]
                include = f"#include <{header}>\n" if header else ""
                prelude = f"{include}using T = {element};\n#define WARPCALL_T_{name.upper()} 1\n#line 1\n"
                code, log = compiled(kind, prelude + source, [
                    f"--gpu-architecture={architecture}", f"-I{INCLUDE}", *manifest["code"].get("options", [])])
                with self.subTest(f"{path.name} {name}"):
                    self.assertEqual(log, "")
                    yield path.stem, manifest, code

    def test_every_example_is_machine_code_in_every_type(self):
        count = 0
        for _, manifest, cubin in self.each("CUBIN", "sm_90a"):
            count += 1
            self.assertIn(f".text.{manifest['code']['entry']}\0".encode(), cubin)
        self.assertEqual(count, 16)

    def test_parameters_are_those_of_the_manifest(self):
        for _, manifest, ptx in self.each("PTX", "compute_90a"):
            entry = ptx.decode().partition(f".entry {manifest['code']['entry']}(")[2].partition(")")[0]
            bits = {"ptr": "64", "i64": "64"}
            self.assertEqual(re.findall(r"\.param \.u(\d+)", entry),
                             [bits[re.split("[.:]", each)[-1]] for each in manifest["args"]])

    def test_vectors_are_one_load_and_one_store(self):
        for example, _, ptx in self.each("PTX", "compute_90a"):
            self.assertNotIn(b".local", ptx, example)  # arrays stay in registers
            for access in (b"ld.global", b"st.global"):
                found = re.findall(access + rb"(?:\.nc)?\.v4\.\w+", ptx)
                self.assertEqual(len(found), 1 if example == "gelu_vectorised" else 0, example)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    FOLDER = pathlib.Path(sys.argv[1]) / "client" / "examples" / "push"
    NVRTC, INCLUDE = load()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
