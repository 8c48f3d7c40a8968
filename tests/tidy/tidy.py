"""The house rules, checked on every source of the repository.

    tidy.py ROOT      prints a line for each finding, "path:line: what and the limit"; exit status 1 if any

Sizes of files, lines and functions; who may include whom (ARCHITECTURE.md's rooms and laws as a table);
where tensors may be copied; guards of headers; notes for later; whether every file is built; where the
documents' links lead. Functions are found by braces and parentheses, without a parser: see functions_of.
"""

import os
import re
import sys
from collections import namedtuple

FILE_LINES_MAX, ROOT_CMAKE_LINES_MAX, COLUMNS_MAX = 1000, 120, 100
FUNCTION_LINES_MAX, PARAMETERS_MAX = 70, 4
FOLDERS = ["kernels", "server", "client", "proto", "tests", "deploy"]

Finding = namedtuple("Finding", "path line message")  # line 0: the file as a whole
Function = namedtuple("Function", "name line lines parameters")


class Source:
    """A file: its text, and for C++ the same with comments and literals blanked, position by position."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.is_header = path.endswith((".h", ".cuh"))
        self.is_cpp = self.is_header or path.endswith((".cc", ".cu"))
        self.folder = path.rpartition("/")[0]
        self.code = blank(text) if self.is_cpp else ""
        self.lines = text.splitlines()
        self.code_lines = self.code.splitlines()


# ---- text ---------------------------------------------------------------------------------------

# Comments, and raw, string and character literals; a quote within a number separates its digits.
_QUIET = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?\*/|R"([^()\\\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                    r"|(?<!\w)'(?:\\.|[^'\\\n])*'", re.S)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)


def _spaces(text):
    return re.sub(r"[^\n]", " ", text)


def blank(text):
    def without(match):
        found = match.group()
        return _spaces(found) if found[0] == "/" else found[0] + _spaces(found[1:-1]) + found[-1]
    return _QUIET.sub(without, text)


# ---- functions ----------------------------------------------------------------------------------

_CLOSING = {"(": ")", "{": "}", "[": "]", "<": ">"}
_NOT_PARAMETERS = {"alignas", "decltype", "__attribute__", "__launch_bounds__", "requires", "noexcept",
                   "explicit", "sizeof"}


def _after_balanced(code, at):
    """The position after the bracket that closes the one at `at`."""
    depth = 0
    for match in re.compile("[" + re.escape(code[at] + _CLOSING[code[at]]) + "]").finditer(code, at):
        depth += 1 if match.group() == code[at] else -1
        if depth == 0:
            return match.end()
    return len(code)


def _without_templates(header):
    header = header.strip()
    while header.startswith("template") and "<" in header:
        header = header[_after_balanced(header, header.index("<")):].lstrip()
    return header


def _name_and_parameters(header):
    """(name, parameters, rest) by the first parentheses that can hold parameters, or None."""
    at = header.find("(")
    while at >= 0:
        name = re.search(r"(operator\s*[^\w\s]*|[\w:~]*)\s*$", header[:at]).group(1)
        end = _after_balanced(header, at)
        if name.endswith("operator"):  # the call operator: its own parentheses come first
            name, at = name + "()", header.find("(", end)
            end = _after_balanced(header, at) if at >= 0 else end
            return (name, header[at + 1:end - 1], header[end:]) if at >= 0 else None
        if not name.startswith("ABSL_") and name not in _NOT_PARAMETERS:
            return name, header[at + 1:end - 1], header[end:]
        at = header.find("(", end)
    return None


def _is_function(header):
    """True if the brace after `header` begins a function's body; None: a scope, looked into."""
    header = _without_templates(header)
    first = re.match(r"\w*", header).group()
    if first in ("class", "struct", "union") or re.match(r"(inline\s+)?namespace\b", header):
        return None
    found = _name_and_parameters(header)
    if first == "extern" and not found:
        return None
    if first == "enum" or not found:
        return bool(re.search(r"=\s*\[[^\]]*\]\s*$", header))  # a lambda without parameters
    outside, nested = header, 1
    while nested:
        outside, nested = re.subn(r"\([^()]*\)", "", outside)
    assigned = re.search(r"=\s*(.?)", outside)
    if assigned and "operator" not in found[0]:
        return assigned.group(1) == "["
    rest = found[2].strip()  # a constructor: a member's initialiser follows a name, the body does not
    return not (rest.startswith(":") and len(rest) > 1 and re.search(r"[\w>]$", rest))


def _count(parameters):
    parameters = parameters.strip()
    if parameters in ("", "void"):
        return 0
    count, at = 1, 0
    while at < len(parameters):
        if parameters[at] in _CLOSING:
            at = _after_balanced(parameters, at)
            continue
        count += parameters[at] == ","
        at += 1
    return count


def functions_of(code):
    """Functions at namespace or class scope, and lambdas that are assigned there: a brace that follows
    parameters and is neither the body of a namespace, class or enum nor an initialiser. Lambdas and classes
    within a function are part of it."""
    code = _DIRECTIVE.sub(lambda match: _spaces(match.group()), code)
    functions, begin, at = [], 0, 0  # begin: of the declaration that is being read
    structure = re.compile(r"[({};]|\b(?:public|protected|private)\s*:(?!:)")
    while match := structure.search(code, at):
        at = match.end()
        if match.group() == "(":
            at = _after_balanced(code, match.start())
        elif match.group() != "{":
            begin = at
        else:
            is_function = _is_function(code[begin:match.start()])
            if is_function is not None:
                at = _after_balanced(code, match.start())
            if is_function:
                begin += len(code[begin:]) - len(code[begin:].lstrip())
                header = _without_templates(code[begin:match.start()])
                name, parameters, _ = _name_and_parameters(header) or ("(lambda)", "", "")
                functions.append(Function(name or "(lambda)", 1 + code.count("\n", 0, begin),
                                          1 + code.count("\n", begin, at), _count(parameters)))
            if is_function is not False:
                begin = at
    return functions


# Kernels that a server compiles when they are pushed: no CMakeLists.txt names them, and they have the
# parameters that their manifests list.
_PUSHED = "client/examples/push/"


def check_functions(source):
    for function in functions_of(source.code):
        if function.lines > FUNCTION_LINES_MAX:
            yield Finding(source.path, function.line, f"function {function.name} has {function.lines} lines; "
                          f"the limit is {FUNCTION_LINES_MAX}")
        if function.parameters > PARAMETERS_MAX and not source.path.startswith(_PUSHED):
            yield Finding(source.path, function.line, f"function {function.name} has {function.parameters} "
                          f"parameters; the limit is {PARAMETERS_MAX}: group them in a struct")


# ---- includes -----------------------------------------------------------------------------------
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)')
_KERNELS = ("@ kernels/* kernels/check/ kernels/common/ kernels/cpu/ kernels/cuda/ kernels/triton/ "
            "kernels/compiled/ kernels/expression/")
_ENGINE = "server/engine/ server/runtime/* kernels/"
# Path's prefix: (headers of this repository, libraries); the first that fits counts. A header matches an
# entry that it begins with; an entry that ends in /* matches the headers of that folder and none below;
# @ is the includer's folder; client/cpp/include/ holds the public headers, <warpcall/client.h>. main.cc
# and server/program wire the server together, so they see all of its rooms, but none of the libraries
# that those hide.
ROOMS = {
    "kernels/catalog_": ("kernels/", ""),
    "kernels/common/": ("@ kernels/*", "cuda"),
    "kernels/fault/": ("@ kernels/", "cuda"),
    "kernels/compiled/": ("@ kernels/* kernels/common/ kernels/cuda/", "cuda openssl"),
    "kernels/manifest/": ("@ kernels/*", "json"),
    "kernels/pushed/": ("@ kernels/* kernels/compiled/ kernels/cuda/ kernels/manifest/", "cuda"),
    "kernels/triton/": ("@ kernels/* kernels/common/ kernels/cuda/ kernels/manifest/ kernels/source/", "cuda json"),
    # Ops that are others' kernels with more at their ends.
    "kernels/layernorm/": (f"{_KERNELS} kernels/norm/", "onednn"),
    "kernels/rmsnorm/": (f"{_KERNELS} kernels/norm/", ""),
    "kernels/linear/": (f"{_KERNELS} kernels/gelu/ kernels/matmul/", "cuda onednn"),
    "kernels/": (_KERNELS, "cuda onednn highway"),
    "proto/common/": ("@", ""),
    "proto/": ("@", "grpc"),
    "server/log/": ("@ server/process/child.h", ""),
    "server/system/": ("@ server/log/ server/runtime/cpu/control_group.h", ""),
    "server/compile/": ("@ server/engine/clock.h server/process/ kernels/compiled/", ""),
    "server/flags/": ("@ server/log/ server/process/child.h server/program/version.h server/runtime/cpu/ server/system/ kernels/", "cli11"),
    "server/engine/": ("@ server/system/housekeeper.h server/log/log.h server/system/small_file.h server/runtime/* kernels/", ""),
    "server/runtime/cuda/": ("@ server/log/log.h server/engine/gpu_reading.h server/engine/phases.h "
                             "server/runtime/* kernels/", "cuda"),
    "server/runtime/": ("@ server/log/log.h server/runtime/* kernels/", ""),
    "server/inspect/": (f"@ server/log/log.h server/process/ {_ENGINE}", "json messages"),
    "server/judge/": (f"@ server/log/log.h server/inspect/ {_ENGINE}", "messages"),
    "server/process/": ("@ server/system/housekeeper.h server/log/log.h server/log/log_writer.h server/engine/clock.h "
                        "server/engine/refusal.h "
                        "kernels/compiled/program.h", ""),
    "server/self_test/": (f"@ server/inspect/ server/process/ {_ENGINE}", ""),
    "server/worker/": (f"@ server/log/log.h server/process/ {_ENGINE}", ""),
    "server/tracing/": ("@ server/engine/ kernels/", ""),
    "server/metrics/": ("@ server/system/listen.h server/log/log.h server/engine/ server/tracing/ kernels/", "beast json prometheus"),
    "server/access/": ("@ server/system/small_file.h", "json openssl"),
    "server/transport/inference/": (f"@ server/transport/* {_ENGINE} proto/", "grpc"),
    "server/transport/": (f"@ server/access/ server/system/housekeeper.h server/system/listen.h server/log/log.h server/inspect/ server/judge/ server/tracing/ {_ENGINE} proto/",
                          "grpc"),
    "server/": ("server/ kernels/", "cli11"),
    "client/cpp/include/": ("@", "messages"),
    "client/cpp/rpc/": ("@ client/cpp/include/ proto/", "grpc"),
    "client/cpp/codec/": ("@ client/cpp/include/ client/cpp/rpc/ proto/", "grpc"),
    "client/cpp/": ("client/cpp/calls/ client/cpp/codec/ client/cpp/complete_file.h client/cpp/include/ "
                    "client/cpp/npy_ client/cpp/residence.h client/cpp/rpc/ proto/", "grpc"),
    "client/cli/common/": ("@ client/cpp/include/ client/cpp/complete_file.h", "cli11 json reflection"),
    "client/cli/bench/": ("@ client/cli/common/ client/cpp/include/", "cli11 json"),
    "client/cli/load/": ("@ client/cli/common/ client/cpp/include/", "cli11 json"),
    "client/cli/profile/": ("@ client/cli/common/ client/cpp/include/", "cli11 json"),
    "client/cli/push/": ("@ client/cli/common/ client/cpp/include/", "cli11 json"),
    "client/cli/top/": ("@ client/cli/common/ client/cpp/include/", "cli11 json"),
    "client/cli/": ("client/cli/ client/cpp/include/", "cli11 json"),
    "client/examples/": ("@ client/cpp/include/", "cli11 json"),
    "client/python/fast/": ("@ client/cpp/include/", "nanobind"),
    "tests/": ("kernels/ server/ client/ proto/ tests/",
               "cuda onednn highway grpc prometheus httplib cli11 json test"),
}
LIBRARIES = {
    "grpc": "grpc/ grpcpp/ google/protobuf/ inference/ opentelemetry/ warpcall/v1/ xds/",
    "messages": "warpcall/v1/warpcall.pb.h",
    "reflection": "google/protobuf/descriptor.h google/protobuf/message.h google/protobuf/util/json_util.h",
    "beast": "boost/asio/ boost/beast/",
    "prometheus": "prometheus/ civetweb.h CivetServer.h",
    "httplib": "httplib.h",
    "cuda": "cuda cublas cudnn nvrtc nvml nvJitLink nvtx3/ cupti cooperative_groups mma.h cub/ cute/ cutlass/",
    "onednn": "dnnl oneapi/dnnl/",
    "highway": "hwy/",
    "openssl": "openssl/",
    "cli11": "CLI/",
    "json": "nlohmann/",
    "nanobind": "nanobind/",
    "test": "gtest/ gmock/ benchmark/ sanitizer/",
}
# Every room may use these: the elements of a tensor, headers without a folder, and
_COMMON = "proto/common/"
_SYSTEM = "absl/ sys/ arpa/ net/ netinet/ linux/"
_OWN = "kernels/ server/ client/ proto/ tests/"


def _matches(header, entries, folder=""):
    for entry in entries.split():
        entry = folder + "/" if entry == "@" else entry
        if header.rpartition("/")[0] + "/*" == entry or not entry.endswith("*") and header.startswith(entry):
            return True
    return False


def _refusal(source, header, is_quoted):
    """Why the file may not include the header, or None."""
    if header.endswith(".cc"):
        return "a .cc is compiled, never included"
    if source.path.startswith("tests/ops/") and is_quoted and "/" not in header:
        return None  # its own, as an op from elsewhere names it (docs/op.md)
    prefix = next(prefix for prefix in ROOMS if source.path.startswith(prefix))
    headers, libraries = ROOMS[prefix]
    if _matches(header, "warpcall/*"):
        header = f"client/cpp/include/{header}"
    if _matches(header, _OWN):
        allowed = _matches(header, f"{headers} {_COMMON}", source.folder)
        return None if allowed else f"{prefix} may include only: {headers} (@: its own folder)"
    its_libraries = [library for library, its_headers in LIBRARIES.items() if _matches(header, its_headers)]
    if its_libraries:
        return None if set(its_libraries) & set(libraries.split()) else \
            f"{prefix} must not see {its_libraries[0]}; its libraries: {libraries or 'none'}"
    is_system = not is_quoted and "/" not in header
    return None if is_system or _matches(header, _SYSTEM) else "a header that tests/tidy/tidy.py does not know"


def check_includes(source):
    if not any(source.path.startswith(prefix) for prefix in ROOMS):
        yield Finding(source.path, 0, "stands in no room that tests/tidy/tidy.py knows")
        return
    for number, (line, code) in enumerate(zip(source.lines, source.code_lines), 1):
        found = _INCLUDE.match(line) if code.lstrip().startswith("#") else None
        refusal = _refusal(source, found.group(2), found.group(1) == '"') if found else None
        if refusal:
            yield Finding(source.path, number, f"includes {found.group(2)}: {refusal}")


# ---- lines --------------------------------------------------------------------------------------

def check_size(source):
    limit = ROOT_CMAKE_LINES_MAX if source.path == "CMakeLists.txt" else FILE_LINES_MAX
    if len(source.lines) > limit:
        yield Finding(source.path, limit + 1, f"the file has {len(source.lines)} lines; the limit is {limit}")
    for number, line in enumerate(source.lines if source.is_cpp else [], 1):
        if len(line) > COLUMNS_MAX and "://" not in line and not line.startswith("#include"):
            yield Finding(source.path, number, f"the line has {len(line)} columns; the limit is {COLUMNS_MAX}")


_NOTE = re.compile("(TO" "DO|FIX" "ME)(?!\\([^)]+\\):\\s*\\S)")


def check_notes(source):
    for number, line in enumerate(source.lines, 1):
        if found := _NOTE.search(line):
            word = found.group(1)
            yield Finding(source.path, number, f"{word} without a reason; write {word}(who or which issue): "
                          "what it waits for")


def check_guard(source):
    if not source.is_header:
        return
    guard = r"^#\s*if.*HWY_TARGET_TOGGLE" if source.path.endswith("-inl.h") else r"^#pragma once\s*$"
    if not re.search(guard, source.code, re.M):
        name = "guard by HWY_TARGET_TOGGLE" if source.path.endswith("-inl.h") else "#pragma once"
        yield Finding(source.path, 1, f"the header has no {name}")


def check_conditionals(source):
    for number, line in enumerate(source.code_lines if source.path.startswith("server/") else [], 1):
        if re.match(r"\s*#\s*(el)?if.*(cuda|__NVCC__)", line, re.I):
            yield Finding(source.path, number, "#if about CUDA under server/: choose by file, as "
                          "devices_cpu.cc and devices_cuda.cc do")


_COPY_PLACE = "server/engine/host_copy.h"
# Files without tensors.
_NO_TENSORS = ("server/transport/reflection_service.cc",)
_COPIES = re.compile(r"(memcpy|memmove|mempcpy|bcopy|copy_n|std::copy|CopyTo|DumpToSingleSlice|c_copy"
                     r"|std::ranges::copy)[(<]")


def check_copies(source):
    """In files with tensors, the host copies bytes in one place, which counts them."""
    if not source.path.startswith(("server/engine/", "server/transport/", "server/worker/")) or \
            source.path in (_COPY_PLACE, *_NO_TENSORS):
        return
    for number, line in enumerate(source.code_lines, 1):
        if found := _COPIES.search(line):
            yield Finding(source.path, number, f"{found.group(1)} where tensors pass through: CopyOnHost "
                          f"({_COPY_PLACE}) copies, and counts")


# ---- the tree -----------------------------------------------------------------------------------

def _cmake_words(text):
    """Words of a CMakeLists.txt outside comments, with the values of its loops in place of variables."""
    text = re.sub(r"#.*", "", text)
    words = set(re.split(r'[\s()"]+', text))
    for variable, values in re.findall(r"\bforeach\(\s*(\w+)([^)]*)\)", text):
        with_variable = [word for word in words if "${%s}" % variable in word]
        words |= {word.replace("${%s}" % variable, value) for word in with_variable for value in values.split()}
    return words


def check_listed(sources):
    """Every file that is compiled is named in the CMakeLists.txt of its folder or of one above it."""
    words = {source.folder: _cmake_words(source.text) for source in sources
             if source.path.split("/")[-1] == "CMakeLists.txt"}
    for source in sources:
        parts = source.path.split("/")
        named = any("/".join(parts[i:]) in words.get("/".join(parts[:i]), ()) for i in range(len(parts)))
        if source.is_cpp and not source.is_header and not named and not source.path.startswith(_PUSHED):
            yield Finding(source.path, 0, "no CMakeLists.txt in its folder or above names it: it is not built")


# ---- documents ----------------------------------------------------------------------------------

def anchors_of(text):
    """Anchors that GitHub makes of a document's headings."""
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def check_links(documents, exists):
    """Links within the tree lead to files, and to headings of documents. `exists` says which paths there are."""
    for path, text in documents.items():
        for number, line in enumerate(text.splitlines(), 1):
            for link in re.findall(r"\]\(([^)\s]+)\)", line):
                file, _, anchor = link.partition("#")
                target = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
                if "://" not in link and not exists(target):
                    yield Finding(path, number, f"links to {link}: there is no such file")
                elif target in documents and anchor and anchor not in anchors_of(documents[target]):
                    yield Finding(path, number, f"links to {link}: {target} has no such heading")


CHECKS = [check_size, check_notes]
CPP_CHECKS = [check_guard, check_conditionals, check_copies, check_functions, check_includes]


def check_all(sources):
    for source in sources:
        for check in CHECKS + (CPP_CHECKS if source.is_cpp else []):
            yield from check(source)
    yield from check_listed(sources)


def read_files(root, folders, ends):
    """{path: text} of the files with these ends in the folders and, not in those below it, the root."""
    paths = [os.path.join(root, name) for name in os.listdir(root)]
    for top in folders:
        for folder, below, files in os.walk(os.path.join(root, top), onerror=lambda error: sys.exit(str(error))):
            below[:] = [name for name in below if name[0] != "." and name not in ("build", "__pycache__")]
            paths += [os.path.join(folder, name) for name in files]
    texts = {}
    for path in sorted(path for path in paths if path.endswith(ends)):
        with open(path, encoding="utf-8") as file:
            texts[os.path.relpath(path, root).replace(os.sep, "/")] = file.read()
    return texts


def read_sources(root):
    ends = ("CMakeLists.txt", ".cc", ".h", ".cu", ".cuh", ".py", ".sh", ".proto", ".cmake")
    return [Source(path, text) for path, text in read_files(root, FOLDERS, ends).items()]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sources = read_sources(sys.argv[1])
    documents = read_files(sys.argv[1], [*FOLDERS, "docs"], (".md",))
    findings = [*check_all(sources),
                *check_links(documents, lambda path: os.path.exists(os.path.join(sys.argv[1], path)))]
    for finding in findings:
        print(f"{finding.path}:{finding.line}: {finding.message}")
    print(f"tidy: {len(sources)} files, {len(documents)} documents, {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
