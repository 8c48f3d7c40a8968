#!/usr/bin/env python3
"""README's lines for C++, word for word but for the server's address, for readme_client.cc.

    readme_snippet.py README FILE    writes them to FILE
"""

import pathlib
import re
import sys

ADDRESS = '"127.0.0.1:8470"'


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    readme, written = map(pathlib.Path, sys.argv[1:])
    blocks = re.findall(r"^```cpp\n(.*?)^```$", readme.read_text(encoding="utf-8"), re.M | re.S)
    if len(blocks) != 1 or blocks[0].count(ADDRESS) != 1:
        sys.exit(f"{readme} has {len(blocks)} blocks for C++; expected one, with {ADDRESS} in it once")
    written.write_text(blocks[0].replace(ADDRESS, "address"), encoding="utf-8")


if __name__ == "__main__":
    main()
