#pragma once
// Virtual hosts n1, n2, …, each with a network, host name and processes of its own, where the tools for them are there.

#include <unistd.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace e2e {

/// They exist as long as this object.
class Hosts {
public:
    Hosts(const Sandbox& sandbox, int count) : sandbox_(sandbox) { call({"up", std::to_string(count)}); }
    ~Hosts() { (void)run(sandbox_, {.argv = {tool(), "down"}}); }
    Hosts(const Hosts&) = delete;
    Hosts& operator=(const Hosts&) = delete;

    [[nodiscard]] static std::string tool() { return (cluster_tools() / "hosts").string(); }

    /// Any command of the tool, {"partition", "n1", "n2"}: it must succeed.
    void call(std::vector<std::string> words) const {
        words.insert(words.begin(), tool());
        const Outcome outcome = run(sandbox_, {.argv = std::move(words)});
        INFO(outcome.out << outcome.err);
        REQUIRE(outcome.status.success());
    }
    [[nodiscard]] Command on(const std::string& host, std::vector<std::string> argv) const {
        argv.insert(argv.begin(), {tool(), "exec", host, "--"});
        return {.argv = std::move(argv), .directory = sandbox_.path()};
    }

private:
    const Sandbox& sandbox_;
};

inline bool no_hosts_here() {
    if (!cluster_tools().empty() && ::geteuid() == 0) return false;
    WARN("SKIPPED: no tools for virtual hosts (set DDPRUN_CLUSTER_TOOLS), or not root");
    return true;
}

}  // namespace e2e
