"""Each house rule on text that keeps it and on text that breaks it."""

import unittest

import tidy
from tidy import Finding, Source


def messages(check, path, text):
    return [finding.message for finding in check(Source(path, text))]


class BlankTest(unittest.TestCase):
    def test_comments_and_literals_are_blanked_in_place(self):
        text = 'a = "x // y";  // "c"\n/* d\n{ */ b = \'"\'; n = 100\'000; r = R"z(\n)" {)z";\n'
        code = tidy.blank(text)
        self.assertEqual([len(line) for line in code.splitlines()], [len(line) for line in text.splitlines()])
        self.assertEqual("".join(code.split()), 'a="";b=\'\';n=100\'000;r=R";')


class FunctionsTest(unittest.TestCase):
    def functions(self, code):
        return [(f.name, f.line, f.lines, f.parameters) for f in tidy.functions_of(tidy.blank(code))]

    def test_finds_functions_at_namespace_and_class_scope(self):
        self.assertEqual(self.functions("""namespace a {
struct B : public ::c::D {
  int f() const { return g([] { return 1; }); }

 private:
  explicit B(int x) : x_{x}, y_(x == 1 ? h(k(x)) : 2) {
    if (x) {
    }
  }
  int z = 3;
};
enum class E { k1, k2 };
constexpr int kTable[] = {1, 2};
const auto lambda = [](int a, int b) {
  return a + b;
};
template <typename T, int n = 2>
void B::Run(const std::map<int, T>& map, std::function<void(int, int)> done) {
}
bool operator==(const B& a, const B& b) { return true; }
void operator()(int x) {}
}  // namespace a
"""), [("f", 3, 1, 0), ("B", 6, 4, 1), ("(lambda)", 14, 3, 2), ("B::Run", 17, 3, 2), ("operator==", 20, 1, 2),
       ("operator()", 21, 1, 1)])

    def test_macros_attributes_and_directives_hide_nothing(self):
        self.assertEqual(self.functions("""#define M(x) \\
  { x
extern "C" {
__global__ void __launch_bounds__(256) K(float* x, int n) {
}
}
void F() ABSL_LOCKS_EXCLUDED(mutex_) {
}
"""), [("K", 4, 2, 2), ("F", 7, 2, 0)])

    def test_limits(self):
        def long(lines):
            return "void f() {\n" + "x;\n" * (lines - 2) + "}\n"
        self.assertEqual(messages(tidy.check_functions, "a.cc", long(70)), [])
        self.assertEqual(messages(tidy.check_functions, "a.cc", long(71)),
                         ["function f has 71 lines; the limit is 70"])
        self.assertEqual(messages(tidy.check_functions, "a.cc", "void f(int a, int b, int c, int d) {}"), [])
        self.assertEqual(messages(tidy.check_functions, "a.cc", "void f(int a, int b, int c, int d, int e) {}"),
                         ["function f has 5 parameters; the limit is 4: group them in a struct"])


class IncludesTest(unittest.TestCase):
    def check(self, path, header):
        return messages(tidy.check_includes, path, f"#include {header}\n")

    def may(self, path, *headers):
        for header in headers:
            self.assertEqual(self.check(path, header), [], f"{path} {header}")

    def may_not(self, path, *headers, why=""):
        for header in headers:
            found = self.check(path, header)
            self.assertEqual(len(found), 1, f"{path} {header}")
            self.assertIn(why, found[0])

    def test_reads_both_forms_and_skips_comments(self):
        source = Source("kernels/a.cc", '#include "server/b.h"\n// #include "client/c.h"\n#  include <hwy/d>\n'
                        "/*\n#include <boost/e>\n*/\n#include <grpc/f>\n")
        self.assertEqual([finding.line for finding in tidy.check_includes(source)], [1, 7])

    def test_standard_and_abseil_go_everywhere(self):
        for path in ("kernels/op.cc", "server/engine/lane.cc", "client/cpp/client.cc"):
            self.may(path, "<vector>", "<sys/socket.h>", '"absl/status/status.h"')

    def test_what_an_element_is_goes_everywhere(self):
        for path in ("kernels/gelu/gelu_cuda.cu", "server/engine/lane.cc", "client/cli/run.cc", "proto/wire/chunk.cc"):
            self.may(path, '"proto/common/data_type.h"')
        self.may_not("proto/common/data_type.h", '"kernels/op.h"', '"proto/wire/chunk.h"', "<grpcpp/grpcpp.h>")

    def test_kernels_know_nobody_else_nor_other_ops(self):
        self.may("kernels/gelu/gelu.cc", '"kernels/gelu/gelu.h"', '"kernels/cpu/thread_pool.h"', '"kernels/op.h"')
        self.may_not("kernels/gelu/gelu.cc", '"server/engine/job.h"', '"client/cpp/client.h"',
                     '"proto/wire/tensor_split.h"', '"kernels/softmax/softmax.h"', why="kernels/ may include only")
        self.may_not("kernels/common/round.h", '"kernels/softmax/softmax.h"')
        self.may("kernels/catalog_cpu.cc", '"kernels/softmax/softmax.h"')

    def test_rooms_of_the_server(self):
        self.may("server/inspect/benchmark.cc", '"server/engine/clock.h"', '"server/runtime/device.h"',
                 '"kernels/registry.h"', '"server/inspect/fill.h"', '"warpcall/v1/warpcall.pb.h"')
        self.may_not("server/inspect/benchmark.cc", '"server/runtime/cuda/cuda_stream.h"',
                     '"server/transport/codec.h"', "<grpcpp/grpcpp.h>", '"warpcall/v1/warpcall.grpc.pb.h"')
        self.may("server/engine/lane.cc", '"server/runtime/device.h"')
        self.may_not("server/engine/lane.cc", '"server/runtime/cpu/cpu_device.h"', '"server/transport/codec.h"',
                     '"server/metrics/prometheus_sink.h"', '"server/flags/config.h"')

    def test_libraries_are_seen_by_their_rooms_only(self):
        for header in ("<grpcpp/grpcpp.h>", '"google/protobuf/message.h"', '"warpcall/v1/warpcall.pb.h"'):
            for path in ("server/transport/codec.cc", "client/cpp/client.cc", "tests/e2e/drain_test.cc"):
                self.may(path, header)
            for path in ("server/main.cc", "server/engine/job.h", "server/metrics/sink.cc", "client/cli/run.cc",
                         "kernels/op.h"):
                self.may_not(path, header, why="must not see grpc")
        for header in ('"prometheus/registry.h"', "<civetweb.h>"):
            self.may("server/metrics/sink.cc", header)
            for path in ("server/main.cc", "server/engine/job.h", "server/transport/a.cc"):
                self.may_not(path, header, why="must not see prometheus")
        self.may("server/metrics/http_message.cc", "<boost/beast/http/parser.hpp>")
        for path in ("server/main.cc", "server/transport/a.cc", "kernels/op.h"):
            self.may_not(path, "<boost/beast/http/parser.hpp>", why="must not see beast")
        self.may("tests/server/metrics/http_server_test.cc", "<httplib.h>")
        for path in ("server/main.cc", "server/metrics/http_server.cc"):
            self.may_not(path, "<httplib.h>", why="must not see httplib")
        self.may("server/runtime/cuda/stream.cc", "<cuda_runtime.h>")
        self.may("kernels/gelu/gelu_cuda.cu", "<cuda_bf16.h>")
        for path in ("server/runtime/cpu/device.cc", "server/engine/lane.cc", "server/main.cc",
                     "client/cpp/client.cc"):
            self.may_not(path, "<cuda_runtime.h>", why="must not see cuda")

    def test_client_knows_no_server(self):
        self.may("client/cpp/client.cc", '"proto/common/data_type.h"', '"warpcall/client.h"')
        self.may_not("client/cpp/client.cc", '"kernels/common/round.h"', '"kernels/op.h"', '"tests/kernels/run_row.h"')
        self.may_not("client/cli/main.cc", '"server/flags/config.h"')
        self.may_not("client/cli/bench/plot.cc", '"client/cli/load/run.h"')
        self.may_not("client/cli/load/calls.cc", '"client/cpp/rpc/channel.h"')
        self.may_not("client/cpp/rpc/channel.cc", '"client/cpp/codec/codec.h"')

    def test_public_headers_need_what_is_installed(self):
        self.may("client/cli/run.cc", "<warpcall/client.h>", '"warpcall/tensor.h"')
        self.may("client/cpp/include/warpcall/inspect.h", '"warpcall/call.h"', '"proto/common/half.h"',
                 '"warpcall/v1/warpcall.pb.h"')
        self.may_not("client/cpp/include/warpcall/inspect.h", '"client/cpp/complete_file.h"', "<grpcpp/grpcpp.h>",
                     '"warpcall/v1/warpcall.grpc.pb.h"')
        # The old names of public headers are for users' programs.
        self.may("client/cpp/client.h", "<warpcall/client.h>")
        for path in ("client/cpp/client.cc", "client/cpp/rpc/channel.cc", "client/cli/run.cc"):
            self.may_not(path, '"client/cpp/client.h"')
        self.may_not("server/transport/codec.cc", '"warpcall/client.h"', why="server/transport/ may include only")

    def test_compiled_files_unknown_libraries_and_unknown_rooms(self):
        self.may_not("tests/kernels/a_test.cc", '"kernels/op.cc"', why="never included")
        self.may_not("kernels/op.cc", "<boost/optional.hpp>", why="does not know")
        self.may_not("attic/op.cc", "<vector>", why="no room")


class LinesTest(unittest.TestCase):
    def test_lines_of_a_file(self):
        self.assertEqual(messages(tidy.check_size, "kernels/a.cc", "x\n" * 1000), [])
        self.assertEqual(list(tidy.check_size(Source("kernels/a.py", "x\n" * 1001))),
                         [Finding("kernels/a.py", 1001, "the file has 1001 lines; the limit is 1000")])
        self.assertEqual(messages(tidy.check_size, "CMakeLists.txt", "x\n" * 120), [])
        self.assertEqual(len(messages(tidy.check_size, "CMakeLists.txt", "x\n" * 121)), 1)
        self.assertEqual(messages(tidy.check_size, "proto/CMakeLists.txt", "x\n" * 121), [])

    def test_columns_are_characters(self):
        self.assertEqual(messages(tidy.check_size, "a.cc", "x" * 99 + "\u00d7"), [])
        self.assertEqual(list(tidy.check_size(Source("a.cc", "\n" + "x" * 101))),
                         [Finding("a.cc", 2, "the line has 101 columns; the limit is 100")])
        self.assertEqual(messages(tidy.check_size, "a.cc", "// https://" + "x" * 100), [])

    def test_headers_have_guards(self):
        self.assertEqual(messages(tidy.check_guard, "a.h", "// a\n#pragma once\n"), [])
        self.assertEqual(messages(tidy.check_guard, "a.cc", ""), [])
        self.assertEqual(messages(tidy.check_guard, "a.cuh", "// #pragma once\n"),
                         ["the header has no #pragma once"])
        toggle = "#if defined(A) == defined(HWY_TARGET_TOGGLE)\n"
        self.assertEqual(messages(tidy.check_guard, "a-inl.h", toggle), [])
        self.assertEqual(messages(tidy.check_guard, "a-inl.h", "#pragma once\n"),
                         ["the header has no guard by HWY_TARGET_TOGGLE"])

    def test_no_conditional_about_cuda_under_server(self):
        for line in ("#if WARPCALL_CUDA\n", "#ifdef __CUDACC__\n", "# elif defined(CUDA)\n", "#ifndef __NVCC__\n"):
            self.assertEqual(len(messages(tidy.check_conditionals, "server/program/devices.cc", line)), 1, line)
            self.assertEqual(messages(tidy.check_conditionals, "kernels/a.cc", line), [])
        self.assertEqual(messages(tidy.check_conditionals, "server/a.cc", "#ifdef NDEBUG\n// #if CUDA\n"), [])

    def test_one_place_copies_where_tensors_pass(self):
        copy = "void f() {\n  std::memcpy(to, from, bytes);\n}\n"
        for path in ("server/engine/host_copy.h", "kernels/identity/identity_memcpy.cc"):
            self.assertEqual(messages(tidy.check_copies, path, copy), [])
        for path in ("server/engine/lane.cc", "server/transport/codec.cc", "server/worker/worker.cc"):
            self.assertEqual(list(tidy.check_copies(Source(path, copy))), [
                Finding(path, 2, "memcpy where tensors pass through: CopyOnHost (server/engine/host_copy.h) copies, "
                        "and counts")])
        for call in ("std::copy(a, b, c);", "std::copy_n<char*>(a, 3, c);", "data.CopyTo(to);",
                     "message->DumpToSingleSlice(&slice);", "absl::c_copy(a, b);", "__builtin_memmove(a, b, 3);"):
            self.assertEqual(len(messages(tidy.check_copies, "server/transport/codec.cc", call)), 1, call)
        self.assertEqual(messages(tidy.check_copies, "server/engine/lane.cc",
                                  "CopyOnHost(to, from, &n);  // not memcpy(a, b, 1)\n"
                                  "int64_t copy_ns = std::copyable<int>;\n"), [])

    def test_notes_have_reasons(self):
        word = "TO" "DO"
        for text in (f"// {word}: later\n", f"# {word}(): x\n", f"// {word}(#12):\n", "// FIX" "ME\n"):
            self.assertEqual(len(messages(tidy.check_notes, "a.cc", text)), 1, text)
        self.assertEqual(messages(tidy.check_notes, "a.cc", f"// {word}(#12): gRPC 1.60\n"), [])


class TreeTest(unittest.TestCase):
    def not_listed(self, **texts):
        sources = [Source(path, text) for path, text in texts.pop("files").items()]
        return [finding.path for finding in tidy.check_listed(sources)]

    def test_every_file_is_built_by_its_folder_or_one_above(self):
        self.assertEqual(self.not_listed(files={
            "kernels/CMakeLists.txt": "add_library(k STATIC op.cc gelu/gelu.cc)", "kernels/op.cc": "",
            "kernels/gelu/gelu.cc": "", "kernels/op.h": ""}), [])
        self.assertEqual(self.not_listed(files={
            "tests/CMakeLists.txt": "# a_test.cc\nadd(other/b_test.cc xc_test.cc)", "tests/a_test.cc": "",
            "tests/b_test.cc": "", "tests/c_test.cc": ""}), ["tests/a_test.cc", "tests/b_test.cc", "tests/c_test.cc"])
        self.assertEqual(self.not_listed(files={
            "tests/CMakeLists.txt": "foreach(test a b)\n  add(SOURCES ${test}_test.cc)\nendforeach()\n",
            "tests/a_test.cc": "", "tests/b_test.cc": "", "tests/c_test.cc": ""}), ["tests/c_test.cc"])

    def test_kernels_that_are_pushed_are_built_by_a_server_and_take_what_their_manifests_say(self):
        many = "void f(int a, int b, int c, int d, int e) {}"
        for path, findings in (("client/examples/push/a.cu", 0), ("client/examples/a.cu", 1)):
            self.assertEqual(len(self.not_listed(files={path: many})), findings)
            self.assertEqual(len(messages(tidy.check_functions, path, many)), findings)

    def test_links_lead_to_files_and_headings(self):
        documents = {"A.md": "# A\n[b](docs/B.md#two-words-its_c) [c](docs/c.svg) [a](#a) [w](https://x.y/z#q)\n",
                     "docs/B.md": "## Two words: `it's_c`\n[A](../A.md#b)\n[c](c.svg) [d](D.md)\n"}
        self.assertEqual(list(tidy.check_links(documents, {*documents, "docs/c.svg"}.__contains__)), [
            Finding("docs/B.md", 2, "links to ../A.md#b: A.md has no such heading"),
            Finding("docs/B.md", 3, "links to D.md: there is no such file")])

    def test_all_of_it(self):
        found = list(tidy.check_all([Source("server/a.h", '#include "tests/b.h"\n' + "x" * 101)]))
        self.assertEqual([finding.line for finding in found], [2, 1, 1])


if __name__ == "__main__":
    unittest.main()
