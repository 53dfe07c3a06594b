#include "common/system/handled_signals.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace ddprun {
namespace {

/// What a process does with a signal.
enum class Handling { kNone, kHandles, kBlocks, kUnknown };

Handling handling_of(pid_t pid, int signal) {
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    const std::uint64_t bit = std::uint64_t{1} << (signal - 1);
    Handling found = Handling::kUnknown;
    for (std::string name; status >> name; status.ignore(4096, '\n')) {
        if (name != "SigBlk:" && name != "SigCgt:") continue;
        std::uint64_t signals = 0;
        if (!(status >> std::hex >> signals)) return Handling::kUnknown;
        const bool has = (signals & bit) != 0;
        if (name == "SigCgt:" && has) return Handling::kHandles;
        if (found != Handling::kBlocks) found = has ? Handling::kBlocks : Handling::kNone;
    }
    return found;
}

// A shell blocks all signals for a moment when it forks; a program that waits for signals blocks them all the time.
constexpr int kLooks = 5;
constexpr std::chrono::milliseconds kBetweenLooks{5};

}  // namespace

bool handles_signal(pid_t pid, int signal) {
    Handling found = handling_of(pid, signal);
    for (int look = 1; found == Handling::kBlocks && look < kLooks; ++look) {
        std::this_thread::sleep_for(kBetweenLooks);
        found = handling_of(pid, signal);
    }
    return found != Handling::kNone;
}

}  // namespace ddprun
