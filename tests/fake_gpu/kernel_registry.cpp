#include "tests/fake_gpu/kernel_registry.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>

namespace ddp::fake {
namespace {

/// Registered kernels keep their addresses. Never destroyed: streams may run when the process ends.
std::map<std::string_view, Kernel>& kernels() {
    static auto& all = *new std::map<std::string_view, Kernel>;
    return all;
}

}  // namespace

const Kernel* find_kernel(std::string_view name) {
    const auto found = kernels().find(name);
    return found == kernels().end() ? nullptr : &found->second;
}

bool register_kernel(const Kernel& kernel) {
    if (kernels().emplace(kernel.name, kernel).second) return true;
    std::fprintf(stderr, "fake CUDA: two kernels are registered as %s\n", kernel.name);
    std::abort();
}

}  // namespace ddp::fake
