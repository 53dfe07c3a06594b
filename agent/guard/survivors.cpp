#include "agent/guard/survivors.hpp"

#include <algorithm>
#include <chrono>

#include "agent/guard/line.hpp"
#include "agent/guard/process_look.hpp"

namespace ddprun::agent {
namespace {

constexpr std::size_t kMaxReported = 8;

}  // namespace

timespec kill_interval(Duration passed) noexcept {
    if (passed < std::chrono::seconds(1)) return {0, 2'000'000};
    if (passed < std::chrono::seconds(10)) return {0, 100'000'000};
    return {1, 0};
}

void report_survivors(const char* printer, std::span<const pid_t> pids) noexcept {
    for (const pid_t pid : pids.first(std::min(pids.size(), kMaxReported))) {
        const ProcessLook look = look_at(pid);
        if (look.state == '\0' || look.state == 'Z') continue;  // it has just ended
        Line line;
        line.add(printer).add(": process ").add(static_cast<long>(pid)).add(" (").add(look.name).add(") is left, ");
        line.add(kUnkillableSeconds).add(" s after SIGKILL: state ").add(look.state);
        if (look.waits_in[0] != '\0') line.add(", in ").add(look.waits_in);
        if (look.state == 'D')
            line.add("; it waits in the kernel, and this node may need a reboot");
        else
            line.add("; end it by hand");
        line.print();
    }
    if (pids.size() > kMaxReported)
        Line().add(printer).add(": and ").add(static_cast<long>(pids.size() - kMaxReported)).add(" more").print();
}

}  // namespace ddprun::agent
