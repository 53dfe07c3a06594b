#!/usr/bin/env python3
"""Checks the public headers as a compiler of the user's sees them: each compiles alone without a warning, and calls that
are wrong in themselves do not compile, or not without a warning.

ddp/torch.hpp is left out where LibTorch's headers are not installed.

usage: headers.py INCLUDE_DIR COMPILER…"""
import pathlib
import re
import subprocess
import sys

WARNINGS = "-std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror".split()

LIBTORCH = pathlib.Path("/usr/include/torch/csrc/api/include")  # Debian: libtorch-dev

# Statements in a function with a group, floats and a pointer without a type; and a part of what the compiler must print,
# None: it compiles.
STATEMENTS = [
    ("group.all_reduce(values, ddp::ReduceOp::Sum).wait();", None),
    ("group.all_reduce({values.data(), 3}, ddp::ReduceOp::Sum, {.label = \"loss\"}).wait();", None),
    ("group.all_gather_v(constant, values, {1, 2}, {.timeout = std::chrono::seconds(5)}).wait();", None),
    ("auto rest = group.shrink({1});", None),
    ("group.broadcast(scalar, 0).wait();", None),
    ("group.send(values, 1, {.label = \"border\"}).wait();", None),
    ("group.recv(values, 1, 5, {.timeout = std::chrono::seconds(5)}).wait();", None),
    ("group.all_reduce(values, ddp::ReduceOp::Sum);", "nodiscard"),  # the forgotten wait()
    ("group.all_reduce({untyped, 3}, ddp::ReduceOp::Sum).wait();", "no matching"),
    ("group.broadcast(constant, 0).wait();", "const"),
    ("group.all_gather(std::vector<float>(3), values).wait();", "std::vector<float>"),
    ("group.reduce(values, values, 0, ddp::ReduceOp::Sum).wait();", "ReduceOp"),
    ("ddp::Work work(3u);", "private"),
]
# Options with which nothing can be compiled, and what the first error must contain.
REFUSED = [
    ("-std=c++17", "ddp needs C++20"),
    ("-D_GLIBCXX_USE_CXX11_ABI=0", "C++11 ABI of libstdc++"),
]
FUNCTION = """#include <chrono>
#include <ddp/ddp.hpp>
#include <vector>
void f(ddp::ProcessGroup& group, std::vector<float>& values, const std::vector<float>& constant, void* untyped, double scalar);
void f([[maybe_unused]] ddp::ProcessGroup& group, [[maybe_unused]] std::vector<float>& values,
       [[maybe_unused]] const std::vector<float>& constant, [[maybe_unused]] void* untyped, [[maybe_unused]] double scalar) {
    %s
}
"""


def compile_text(compiler, include, text, *options):
    command = [compiler, *WARNINGS, *options, "-I", include, "-isystem", LIBTORCH, "-x", "c++", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True)


def main():
    include, compilers = sys.argv[1], sys.argv[2:]
    problems = []
    for compiler in compilers:
        for header in sorted(pathlib.Path(include, "ddp").rglob("*.hpp")):
            name = header.relative_to(include)
            if name.name == "torch.hpp" and not LIBTORCH.exists():
                continue
            done = compile_text(compiler, include, f"#include <{name}>\n")
            if done.returncode != 0:
                problems.append(f"{compiler}: {name} does not compile alone:\n{done.stderr}")
            if re.search(r"^namespace ddp \{", header.read_text(), re.M):
                problems.append(f"{name}: the shared library does not export it: write 'namespace DDP_EXPORT ddp {{'")
        for statement, expected in STATEMENTS:
            done = compile_text(compiler, include, FUNCTION % statement)
            if expected is None and done.returncode != 0:
                problems.append(f"{compiler}: does not compile: {statement}\n{done.stderr}")
            if expected is not None and (done.returncode == 0 or expected not in done.stderr):
                problems.append(f"{compiler}: expected an error with '{expected}': {statement}\n{done.stderr}")
        for option, expected in REFUSED:
            done = compile_text(compiler, include, "#include <ddp/ddp.hpp>\n", option)
            first = re.search("error: .*", done.stderr)
            if first is None or expected not in first.group():
                problems.append(f"{compiler}: expected a first error with '{expected}' with {option}:\n{done.stderr}")
    print("\n".join(problems) or f"the public headers are right for {', '.join(compilers)}")
    return 1 if problems else 0


sys.exit(main())
