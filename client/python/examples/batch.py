"""A batch job: runs a kernel on every .npy file of a folder, several calls under way, and writes
each result to a file of the same name in another folder.

    python batch.py KERNEL FROM TO [--server ADDRESS] [--window 8]

With tqdm installed a bar shows how far it is. Files are mapped into memory, not read at once.
"""

import argparse
import pathlib
from collections.abc import Iterator

import numpy as np

import warpcall


class Files:
    """Arrays in files, opened one after the other. That there is a length makes a bar complete."""

    def __init__(self, paths: list[pathlib.Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[object]:
        return (np.load(path, mmap_mode="r") for path in self._paths)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kernel")
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--server")
    parser.add_argument("--window", type=int, default=8)
    options = parser.parse_args()
    paths = sorted(options.source.glob("*.npy"))
    options.target.mkdir(parents=True, exist_ok=True)
    with warpcall.connect(options.server) as client:
        results = client.map(options.kernel, Files(paths), window=options.window, progress=True)
        for path, result in zip(paths, results, strict=True):
            np.save(options.target / path.name, np.asarray(result))
    print(f"{len(paths)} files")


if __name__ == "__main__":
    main()
