#pragma once
// Reads the variable of an indexed Job of Kubernetes, whose pods are also those of a JobSet, and the name of the pod.

#include <optional>

#include "common/error.hpp"
#include "common/system/environment.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// Returns the domain name of a host by its name, as the hosts file has it; empty: there is none.
using DomainName = std::string (*)(const std::string& host);
[[nodiscard]] std::string domain_name(const std::string& host);

/// As find_allocation(), for an indexed Job.
[[nodiscard]] Result<std::optional<Allocation>> find_kubernetes(const Environment& environment,
                                                                std::optional<int> nodes,
                                                                DomainName domain_name_of = domain_name);

/// As step_size(), for an indexed Job: pod 1 proves that there are two.
[[nodiscard]] std::optional<StepSize> kubernetes_step_size(const Environment& environment);

}  // namespace ddprun::launcher
