#include "tests/fake_gpu/misuse.hpp"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace ddp::fake {
namespace {

thread_local const CallScope* current_call = nullptr;
std::atomic<unsigned> count = 0;  // relaxed: it must order no threads

/// Returns "program+0x1234 (function)", which addr2line can read.
std::string place_of(const void* address) {
    Dl_info info{};
    if (address == nullptr || ::dladdr(address, &info) == 0) return "an unknown place";
    const char* const slash = std::strrchr(info.dli_fname, '/');
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
    char text[512];
    std::snprintf(text, sizeof text, "%s+0x%zx%s%s%s", slash == nullptr ? info.dli_fname : slash + 1, offset,
                  info.dli_sname == nullptr ? "" : " (", info.dli_sname == nullptr ? "" : info.dli_sname,
                  info.dli_sname == nullptr ? "" : ")");
    return text;
}

}  // namespace

CallScope::CallScope(const char* call, const void* caller) : outer_(current_call), call_(call), caller_(caller) {
    current_call = this;
}

CallScope::~CallScope() { current_call = outer_; }

const char* CallScope::current_name() { return current_call == nullptr ? "no call" : current_call->call_; }

void report_misuse(const std::string& what) {
    const char* const rank = std::getenv("RANK");
    const std::string where = current_call == nullptr ? ""
                                                      : std::string(current_call->call_) + ", called from " +
                                                            place_of(current_call->caller_) + " by ";
    std::fprintf(stderr, "fake CUDA: %s (%sthread %ld of process %d, rank %s)\n", what.c_str(), where.c_str(),
                 ::syscall(SYS_gettid), ::getpid(), rank == nullptr ? "unknown" : rank);
    count.fetch_add(1, std::memory_order_relaxed);
    const char* const reaction = std::getenv("DDP_FAKE_CUDA_MISUSE");
    if (reaction == nullptr || std::string_view(reaction) != "count") std::abort();
}

unsigned misuses() { return count.load(std::memory_order_relaxed); }

}  // namespace ddp::fake
