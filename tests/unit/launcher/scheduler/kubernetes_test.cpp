#include "launcher/scheduler/kubernetes.hpp"

#include "common/scheduler_step.hpp"
#include "tests/catch.hpp"
#include "tests/unit/launcher/scheduler/parsed.hpp"

namespace ddprun::launcher {
namespace {

using Catch::Contains;

/// The variables of the second pod of an indexed Job.
Environment second_pod() { return {{"JOB_COMPLETION_INDEX", "1"}, {"HOSTNAME", "train-1"}}; }

/// As the kubelet writes it into the hosts file of a pod with a subdomain.
std::string with_subdomain(const std::string& host) { return host + ".train-svc.default.svc.cluster.local"; }
std::string without_subdomain(const std::string& host) { return host; }

std::string pod_refusal(const Environment& environment, std::optional<int> nodes = 3) {
    const auto found = find_kubernetes(environment, nodes, with_subdomain);
    return found ? "" : found.error().message;
}

TEST_CASE("a pod of an indexed Job needs the number of pods only", "[launcher]") {
    const auto found = find_kubernetes(second_pod(), 3, with_subdomain);
    REQUIRE(found.has_value());
    REQUIRE(found->has_value());
    const Allocation& pods = **found;
    CHECK(pods.hosts == std::vector<std::string>{"train-0.train-svc.default.svc.cluster.local",
                                                 "train-1.train-svc.default.svc.cluster.local",
                                                 "train-2.train-svc.default.svc.cluster.local"});
    CHECK(pods.nodes == 3);
    CHECK(pods.node == 1);
    CHECK(pods.name == "kubernetes-train.train-svc.default.svc.cluster.local");
    CHECK_FALSE(find_kubernetes({}, 3, with_subdomain)->has_value());
}

TEST_CASE("a pod of a JobSet is one of its Job", "[launcher]") {
    const auto found =
        find_kubernetes({{"JOB_COMPLETION_INDEX", "1"}, {"HOSTNAME", "set-workers-0-1"}}, 2, with_subdomain);
    REQUIRE(found.has_value());
    CHECK((*found)->hosts.front() == "set-workers-0-0.train-svc.default.svc.cluster.local");
}

TEST_CASE("a pod whose Job has an unknown number of pods, or no domain, is refused with what is missing",
          "[launcher]") {
    CHECK_THAT(refusal(second_pod()),
               Contains("JOB_COMPLETION_INDEX=1") && Contains("Pass --nnodes N") && Contains("--standalone"));
    const auto found = find_kubernetes(second_pod(), 3, without_subdomain);
    REQUIRE_FALSE(found.has_value());
    CHECK_THAT(found.error().message, Contains("the pod train-1 has no domain name") && Contains("headless Service") &&
                                          Contains("`subdomain`"));
    CHECK_THAT(pod_refusal({{"JOB_COMPLETION_INDEX", "1"}, {"HOSTNAME", "train-12"}}),
               Contains("the name of this host, train-12, does not end in -1"));
    CHECK_THAT(pod_refusal({{"JOB_COMPLETION_INDEX", "x"}, {"HOSTNAME", "train-1"}}),
               Contains("JOB_COMPLETION_INDEX=x"));
    CHECK_THAT(pod_refusal({{"JOB_COMPLETION_INDEX", "-1"}, {"HOSTNAME", "train-1"}}),
               Contains("JOB_COMPLETION_INDEX=-1"));
}

TEST_CASE("a pod that proves more pods than --nnodes has is refused", "[launcher]") {
    for (const std::vector<std::string>& line : {std::vector<std::string>{"--nnodes", "1", "train"},
                                                 {"--nnodes", "1:2", "--rdzv-endpoint", "localhost:0", "train"}}) {
        CHECK(refusal(second_pod(), line) ==
              "an indexed Job of Kubernetes has started ddprun at least 2 times, and each would train alone. For one "
              "job of all, pass --nnodes N, the number of all, and no endpoint; for a job of each, pass --standalone.");
    }
    CHECK_THAT(refusal(with(second_pod(), {{"PET_NNODES", "1"}})), Contains("each would train alone"));
    CHECK(refusal(with(second_pod(), {{"JOB_COMPLETION_INDEX", "0"}}), {"--nnodes", "1", "train"}) == "");
    CHECK(refusal({}, {"--nnodes", "1", "train"}) == "");
    const Environment third{{"JOB_COMPLETION_INDEX", "2"}, {"HOSTNAME", "train-2"}};
    CHECK_THAT(
        pod_refusal(third, 2),
        Contains("JOB_COMPLETION_INDEX=2: the Job has 3 pods or more, but --nnodes is 2") && Contains("--standalone"));
    CHECK(pod_refusal(third, 3) == "");
}

TEST_CASE("a pod whose variables name all needs nothing of its Job", "[launcher]") {
    const Environment kubeflow = with(second_pod(), {{"PET_NNODES", "2"},
                                                     {"PET_NODE_RANK", "1"},
                                                     {"PET_MASTER_ADDR", "train-0.train"},
                                                     {"PET_MASTER_PORT", "29500"}});
    CHECK(options(kubeflow).nodes == NodeRange{2, 2});
    CHECK_FALSE(options(kubeflow).allocation.has_value());
    CHECK(refusal(second_pod(), {"--standalone", "train"}) == "");
    CHECK(options(with(second_pod(), {{kSchedulerStepVariable, scheduler_step(second_pod())}})).nodes ==
          NodeRange{1, 1});
}

}  // namespace
}  // namespace ddprun::launcher
