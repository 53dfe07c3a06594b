#include "launcher/fence.hpp"

#include <fmt/format.h>

#include <utility>

#include "agent/guard/pid_namespace.hpp"
#include "common/system/signals_blocked.hpp"

namespace ddprun::launcher {
namespace {

Error unavailable(std::string_view name, const Error& reason, std::string_view remedy) {
    return {Errc::kUsage, fmt::format("--fence {}: {}. {}", name, reason.message, remedy)};
}

}  // namespace

Result<ChosenFence> make_fence(Fence requested) {
    if (requested == Fence::kGuard) return ChosenFence{{}, false, "the guard alone (--fence guard)"};
    if (requested == Fence::kNamespace) {
        if (const auto possible = agent::probe_pid_namespace(); !possible) {
            return unavailable("namespace", possible.error(),
                               "AppArmor, a container's seccomp profile or the sysctl user.max_user_namespaces may "
                               "forbid it to users other than root: allow it there, or pass --fence auto.");
        }
        return ChosenFence{{}, true, "a pid namespace (--fence namespace)"};
    }
    auto group = agent::FenceGroup::make();
    if (group) {
        std::string description = fmt::format("the control group {}", group->path());
        return ChosenFence{std::move(*group), false, std::move(description)};
    }
    if (requested == Fence::kAuto)
        return ChosenFence{
            {}, false, fmt::format("the guard alone, without a control group: {}", group.error().message)};
    return unavailable("cgroup", group.error(),
                       "Start ddprun below `systemd-run --user --scope -p Delegate=yes`, or in a Slurm step whose "
                       "cgroup is delegated; or leave the option out.");
}

Result<void> probe_fence(Fence requested) {
    if (requested == Fence::kAuto || requested == Fence::kGuard) return {};  // never refused
    const SignalsBlocked blocked;  // so that the group does not outlive this function
    if (const auto made = make_fence(requested); !made) return made.error();
    return {};
}

}  // namespace ddprun::launcher
