#include "launcher/scheduler/kubernetes.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

#include "common/job_limits.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {
namespace {

constexpr const char* kPodIndex = "JOB_COMPLETION_INDEX";

std::string own_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

std::string domain_name(const std::string& host) {
    addrinfo hints{};
    hints.ai_flags = AI_CANONNAME;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return "";
    std::string name = found->ai_canonname != nullptr ? found->ai_canonname : "";
    ::freeaddrinfo(found);
    return name;
}

Result<std::optional<Allocation>> find_kubernetes(const Environment& environment, std::optional<int> nodes,
                                                  DomainName domain_name_of) {
    const Variables pod(environment, kPodIndex);
    if (!pod.found()) return std::optional<Allocation>();
    const auto index = pod.number(kPodIndex, 0, kMaxNodes - 1);
    if (!index) return index.error();
    if (!nodes) {
        return start_error(fmt::format(
            "{}={}: this pod is one of an indexed Job of Kubernetes, which does not pass on how many it has. "
            "Pass --nnodes N, the completions of the Job (or set PET_NNODES); or --standalone, if each pod "
            "is to train alone.",
            kPodIndex, *index));
    }
    if (*index >= *nodes) {
        return start_error(fmt::format(
            "{}={}: the Job has {} pods or more, but --nnodes is {}. Pass --nnodes N, the completions of the "
            "Job (or set PET_NNODES); with --spare, pass --rdzv-endpoint HOST:PORT; or pass --standalone, "
            "if each pod is to train alone.",
            kPodIndex, *index, *index + 1, *nodes));
    }
    const std::string full(pod.text("HOSTNAME").value_or(own_name()));
    const std::string host = full.substr(0, full.find('.'));
    const std::string ending = fmt::format("-{}", *index);
    if (!host.ends_with(ending)) {
        return start_error(
            fmt::format("the name of this host, {}, does not end in {}, the index of its pod ({}), so the pods of the "
                        "Job cannot be named. {}",
                        host, ending, kPodIndex, kNameTheNodes));
    }
    const std::string domain = domain_name_of(host);
    const auto dot = domain.find('.');
    if (dot == std::string::npos || domain.substr(0, dot) != host) {
        return start_error(fmt::format(
            "the pod {} has no domain name, so the others cannot reach it by one. Create a headless Service "
            "for the Job, and name it in `subdomain` of the pod template (a JobSet does both); or pass "
            "--rdzv-endpoint HOST:PORT.",
            host));
    }
    const std::string job = host.substr(0, host.size() - ending.size());
    const std::string rest = domain.substr(dot);
    Allocation allocation;
    allocation.name = fmt::format("kubernetes-{}{}", job, rest);
    allocation.title = fmt::format("the Job {}", job);
    for (int pod_index = 0; pod_index < *nodes; ++pod_index)
        allocation.hosts.push_back(fmt::format("{}-{}{}", job, pod_index, rest));
    allocation.nodes = *nodes;
    allocation.node = *index;
    allocation.job_nodes = *nodes;
    allocation.start_on_all = "one ddprun in each pod";
    return allocation;
}

std::optional<StepSize> kubernetes_step_size(const Environment& environment) {
    const Variables pod(environment, kPodIndex);
    const auto index = pod.number(kPodIndex, 1, kMaxNodes - 1);
    if (!index) return std::nullopt;
    return StepSize{"an indexed Job of Kubernetes", *index + 1, *index + 1, true};
}

}  // namespace ddprun::launcher
