#include "agent/guard/describe_process.hpp"

#include <fmt/format.h>

#include "agent/guard/process_look.hpp"
#include "common/system/host_pid.hpp"

namespace ddprun::agent {

std::string describe_process(pid_t pid) {
    const ProcessLook look = look_at(pid);
    if (look.state == '\0') return std::to_string(host_pid(pid));
    const std::string place = look.waits_in[0] != '\0' ? fmt::format(" in {}", look.waits_in) : "";
    return fmt::format("{} ({}, state {}{})", host_pid(pid), look.name, look.state, place);
}

}  // namespace ddprun::agent
