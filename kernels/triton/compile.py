"""Compiles the kernels in Triton's language for GPUs, of which none is needed, and writes what the server
loads them by.

    compile.py --output FOLDER --architectures 90[,...] [--jobs N]

FOLDER/kernels.bin has the cubins one after the other, FOLDER/manifest.json says where they lie and how they
are launched; kernels/triton/manifest.h describes it.
"""

import argparse
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
OPS = ("gelu", "softmax", "layernorm", "rmsnorm", "matmul", "linear")
FORMAT = 1
# What Triton appends to a kernel's parameters, in this order: memory of the launch for the kernel, and for
# Triton's profiler.
HIDDEN = ("global_scratch", "profile_scratch")
BYTES = {"u64": 8, "b64": 8, "s64": 8, "u32": 4, "b32": 4, "s32": 4, "f32": 4}
ARGUMENT_BYTES = {"i32": 4, "i64": 8, "fp32": 4}
WARP_THREADS = 32
ALIGNMENT = 16  # of each cubin in kernels.bin

# What the tests get by `import`, too; norm has what layernorm and rmsnorm share.
sys.path[:0] = [FOLDER] + [os.path.join(os.path.dirname(FOLDER), folder) for folder in (*OPS, "norm")]


def variants_of(op, data_type):
    """In the order in which the server numbers them."""
    return list(importlib.import_module(op + "_triton").variants(data_type))


def everything():
    from variant import TYPES
    return [(op, data_type, variant) for op in OPS for data_type in TYPES
            for variant in variants_of(op, data_type)]


def compile_variant(variant, architecture):
    """What triton.compile returns."""
    import triton
    from triton.backends.compiler import GPUTarget
    names = variant.kernel.arg_names
    given = {**variant.arguments, **variant.constants}
    if set(names) != set(given):
        raise ValueError(f"{variant.name}: only one of the kernel and its variant has "
                         f"{sorted(set(names) ^ set(given))}")
    signature = {name: variant.arguments[name].type if name in variant.arguments else "constexpr"
                 for name in names}
    divisible = {(names.index(name),): [["tt.divisibility", 16]]
                 for name, argument in variant.arguments.items() if argument.divisible_by == 16}
    source = triton.compiler.ASTSource(fn=variant.kernel, signature=signature, constexprs=variant.constants,
                                       attrs=divisible)
    return triton.compile(source, target=GPUTarget("cuda", architecture, WARP_THREADS),
                          options={"num_warps": variant.warps, "num_stages": variant.stages})


def parameter_bytes(ptx, entry):
    """The size of each of the entry's parameters, as generated."""
    match = re.search(r"\.entry\s+" + re.escape(entry) + r"\s*\(([^)]*)\)", ptx)
    if not match:
        raise ValueError(f"the generated code has no entry {entry}")
    return [BYTES[of_type] for of_type in re.findall(r"\.param\s+\.(\w+)", match.group(1))]


def check_parameters(described, generated):
    """How many hidden parameters follow the described ones; raises where those are others."""
    hidden = len(generated) - len(described)
    if generated[:len(described)] != described or not 0 <= hidden <= len(HIDDEN):
        raise ValueError(f"parameters of {described} bytes are described, and of {generated} generated")
    if generated[len(described):] != [8] * hidden:
        raise ValueError(f"hidden parameters are addresses; generated are {generated[len(described):]} bytes")
    return hidden


def compile_image(task):
    """(description, cubin) of a variant, for one architecture."""
    (op, data_type, index), architecture = task
    variant = variants_of(op, data_type)[index]
    compiled = compile_variant(variant, architecture)
    metadata = compiled.metadata
    described = [8 if argument.type.startswith("*") else ARGUMENT_BYTES[argument.type]
                 for argument in (variant.arguments[name] for name in variant.kernel.arg_names
                                  if name in variant.arguments)]
    generated = parameter_bytes(compiled.asm["ptx"], metadata.name)
    check_parameters(described, generated)
    if metadata.num_ctas != 1 or metadata.launch_cooperative_grid or metadata.launch_pdl:
        raise ValueError(f"{op} {variant.name}: clusters, cooperative and dependent launches are not known to "
                         "the loader")
    cubin = compiled.asm["cubin"]
    return {"architecture": architecture, "entry": metadata.name, "threads": metadata.num_warps * WARP_THREADS,
            "shared_bytes": metadata.shared, "parameter_bytes": generated,
            "scratch_bytes": [metadata.global_scratch_size, metadata.profile_scratch_size],
            "bytes": len(cubin), "sha256": hashlib.sha256(cubin).hexdigest()}, cubin


def describe(op, data_type, variant):
    return {"op": op, "data_type": data_type, "variant": variant.name, "tile": variant.tile,
            "traits": variant.traits, "constants": variant.constants_for_expressions(),
            "arguments": [{"name": name, "type": argument.type.split("*")[0] or "pointer",
                           "divisible_by": argument.divisible_by}
                          for name, argument in ((name, variant.arguments[name])
                                                 for name in variant.kernel.arg_names
                                                 if name in variant.arguments)],
            "given": list(variant.given), "grid": list(variant.grid), "requires": list(variant.requires), "images": []}


def versions():
    import triton
    from triton.backends.nvidia.compiler import get_ptxas
    return {"triton": triton.__version__, "ptxas": get_ptxas(90).version}


def read_choices():
    """choices.txt: [op, data type, sizes, tile] a line."""
    choices = []
    with open(os.path.join(FOLDER, "choices.txt")) as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                op, data_type, *sizes, tile = line.split()
                choices.append({"op": op, "data_type": data_type, "sizes": [int(size) for size in sizes],
                                "tile": tile})
    return choices


def compile_everything(architectures, jobs):
    """(manifest, cubins)"""
    kernels, tasks, counts = [], [], {}
    for op, data_type, variant in everything():
        kernels.append(describe(op, data_type, variant))
        index = counts[op, data_type] = counts.get((op, data_type), -1) + 1
        tasks += [((op, data_type, index), architecture) for architecture in architectures]
    with multiprocessing.Pool(jobs) as pool:
        results = pool.map(compile_image, tasks, chunksize=1)
    cubins, offset = [], 0
    for number, (image, cubin) in enumerate(results):
        image["offset"] = offset
        kernels[number // len(architectures)]["images"].append(image)
        cubins.append(cubin + bytes(-len(cubin) % ALIGNMENT))
        offset += len(cubins[-1])
    return {"format": FORMAT, "made_by": versions(), "choices": read_choices(), "kernels": kernels}, cubins


def write(folder, manifest, cubins):
    os.makedirs(folder, exist_ok=True)
    for name, data in (("kernels.bin", b"".join(cubins)),
                       ("manifest.json", json.dumps(manifest, separators=(",", ":")).encode())):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--output", required=True)
    parser.add_argument("--architectures", required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    flags = parser.parse_args()
    # Where each instruction comes from doubles a cubin.
    os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "1")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(os.path.abspath(flags.output), "cache")
    write(flags.output, *compile_everything([int(number) for number in flags.architectures.split(",")],
                                            flags.jobs))


if __name__ == "__main__":
    main()
