#pragma once
// Reports a finding of a fuzz target: prints what is wrong and aborts, and the fuzzer keeps the input.

#include <cstdio>
#include <cstdlib>
#include <string>

inline void check(bool holds, const std::string& otherwise) {
    if (holds) return;
    std::fprintf(stderr, "FINDING: %s\n", otherwise.c_str());
    std::abort();
}
