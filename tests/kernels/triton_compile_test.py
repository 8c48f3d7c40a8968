"""Output of kernels/triton/compile.py for this build: the manifest tells the truth about the machine code, and the code
is as requested. Needs no GPU.

    triton_compile_test.py FOLDER      of manifest.json and kernels.bin, with the Python that has Triton
"""

import hashlib
import json
import os
import re
import struct
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "kernels", "triton"))
sys.dont_write_bytecode = True

SKIPPED = 77
COMPILED = os.path.abspath(sys.argv[1])
os.environ["TRITON_CACHE_DIR"] = os.path.join(COMPILED, "cache")
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
try:
    import triton  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

import compile as generator  # noqa: E402

HOPPER = 90
# Entries of a cubin's .nv.info.<kernel>: format byte, attribute byte, 16 bits of length, the value.
PARAMETER_ATTRIBUTE, SIZED_FORMAT = 0x17, 4


def sections_of(cubin):
    """An ELF file's sections by name."""
    assert cubin[:4] == b"\x7fELF"
    table, = struct.unpack_from("<Q", cubin, 40)
    size, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    names = headers[names_index][4]
    return {cubin[names + header[0]:cubin.index(b"\0", names + header[0])].decode():
            cubin[header[4]:header[4] + header[5]] for header in headers}


def parameters_of(cubin, entry):
    """Sizes of the kernel's parameters, as the assembler recorded them for the driver."""
    info, at, sizes = sections_of(cubin)[f".nv.info.{entry}"], 0, {}
    while at < len(info):
        form, attribute, length = struct.unpack_from("<BBH", info, at)
        if form == SIZED_FORMAT:
            if attribute == PARAMETER_ATTRIBUTE:
                _, ordinal, _, flags = struct.unpack_from("<IHHI", info, at + 4)
                sizes[ordinal] = flags >> 18
            at += length
        at += 4
    return [sizes[ordinal] for ordinal in sorted(sizes)]


def ptx_of(op, data_type, name):
    variant = next(each for each in generator.variants_of(op, data_type) if each.name == name)
    return generator.compile_variant(variant, HOPPER).asm["ptx"]


class CompileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(COMPILED, "manifest.json"), encoding="utf-8") as file:
            cls.manifest = json.load(file)
        with open(os.path.join(COMPILED, "kernels.bin"), "rb") as file:
            cls.cubins = file.read()

    def test_every_variant_is_there_in_its_order(self):
        self.assertEqual([(kernel["op"], kernel["data_type"], kernel["variant"])
                          for kernel in self.manifest["kernels"]],
                         [(op, data_type, variant.name) for op, data_type, variant in generator.everything()])

    def test_names_are_distinct(self):
        names = [(kernel["op"], kernel["data_type"], kernel["variant"]) for kernel in self.manifest["kernels"]]
        self.assertEqual(len(set(names)), len(names))

    def test_images_are_the_machine_code_that_is_described(self):
        end = 0
        for kernel in self.manifest["kernels"]:
            self.assertTrue(kernel["images"])
            for image in kernel["images"]:
                with self.subTest(op=kernel["op"], variant=kernel["variant"]):
                    self.assertGreaterEqual(image["offset"], end)
                    self.assertEqual(image["offset"] % generator.ALIGNMENT, 0)
                    end = image["offset"] + image["bytes"]
                    cubin = self.cubins[image["offset"]:end]
                    self.assertEqual(hashlib.sha256(cubin).hexdigest(), image["sha256"])
                    self.assertIn(f".text.{image['entry']}", sections_of(cubin))
                    self.assertEqual(parameters_of(cubin, image["entry"]), image["parameter_bytes"])
                    described = [4 if argument["type"] in ("i32", "fp32") else 8
                                 for argument in kernel["arguments"]]
                    self.assertEqual(image["parameter_bytes"][:len(described)], described)
                    self.assertLessEqual(len(image["parameter_bytes"]), len(described) + len(generator.HIDDEN))
                    self.assertEqual(image["scratch_bytes"], [0, 0])
        self.assertLessEqual(end, len(self.cubins))

    def test_parameters_that_are_not_described_are_refused(self):
        self.assertEqual(generator.check_parameters([8, 8, 4], [8, 8, 4, 8, 8]), 2)
        self.assertEqual(generator.check_parameters([8, 8, 4], [8, 8, 4]), 0)
        for generated in ([8, 8], [8, 4, 8, 8, 8], [8, 8, 4, 8, 8, 8], [8, 8, 4, 4, 8]):
            with self.subTest(generated=generated), self.assertRaises(ValueError):
                generator.check_parameters([8, 8, 4], generated)

    def expect(self, pattern, ptx, is_there=True):
        self.assertEqual(re.search(pattern, ptx) is not None, is_there, pattern)

    def test_float32_is_multiplied_as_such_unless_tf32_is_asked_for(self):
        for layout in ("nn", "tt"):
            self.expect("tf32", ptx_of("matmul", "float32", f"128x128x16/8/3 {layout} by 16"), is_there=False)
            self.expect("tf32", ptx_of("matmul", "float32", f"128x128x32/4/4 {layout} tf32 by 16"))

    def test_hopper_multiplies_16_bits_by_warp_groups_and_copies_by_16_bytes(self):
        for layout in ("nn", "nt", "tn", "tt"):
            ptx = ptx_of("matmul", "bfloat16", f"128x256x64/8/3 {layout} by 16")
            self.expect(r"wgmma\.mma_async\S*\.bf16", ptx)
            self.expect(r"cp\.async\.c[ag]\.shared\.global .*0x10,", ptx)
            self.expect(r"cp\.async\.c[ag]\.shared\.global .*0x[248],", ptx, is_there=False)
            self.expect(r"\bld\.global", ptx, is_there=False)

    def test_memory_is_read_and_written_by_16_bytes(self):
        for op, name in (("gelu", "tanh 2048/4"), ("softmax", "1024x4/4 by 16"),
                         ("softmax", "loop:4096/8 by 16"), ("layernorm", "1024x2/4 by 16"),
                         ("rmsnorm", "loop:8192/16 by 16")):
            ptx = ptx_of(op, "bfloat16", name)
            self.expect(r"ld\.global\S*\.v4\.b32", ptx)
            self.expect(r"st\.global\S*\.v4\.b32", ptx)

    def test_choices_name_tiles(self):
        tiles = {(kernel["op"], kernel["data_type"], kernel["tile"]) for kernel in self.manifest["kernels"]}
        for choice in self.manifest["choices"]:
            self.assertIn((choice["op"], choice["data_type"], choice["tile"]), tiles)
        for op, data_type, _ in tiles:
            chosen = [(choice["op"], choice["data_type"]) for choice in self.manifest["choices"]]
            self.assertIn((op, data_type), chosen)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
