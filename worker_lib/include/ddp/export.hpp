#pragma once
// DDP_EXPORT: marks the namespace blocks whose functions and classes the shared library exports, `namespace DDP_EXPORT
// ddp {`. All else is compiled with hidden visibility, so classes of ddp::detail are declared outside of these blocks.
// Every public header includes it, so it also refuses what no program can be compiled with.

#if __cplusplus < 202002L
#error "ddp needs C++20: compile with -std=c++20 or newer (CMake: ddp::ddp asks for it)"
#endif

#include <version>  // defines the macros of the C++ library
#if !defined(__GLIBCXX__)
#error "libddp is compiled with GCC's C++ library: compile with -stdlib=libstdc++"
#elif !_GLIBCXX_USE_CXX11_ABI
#error \
    "libddp is compiled with the C++11 ABI of libstdc++: compile with _GLIBCXX_USE_CXX11_ABI=1. A LibTorch that \
needs 0 cannot be used: take a build whose torch.compiled_with_cxx11_abi() is True"
#endif

#define DDP_EXPORT [[gnu::visibility("default")]]
