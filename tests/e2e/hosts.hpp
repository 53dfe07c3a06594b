#pragma once
// Virtual hosts n1, n2, …, each with its own network, host name and processes, on a machine that has the tools for
// them.

#include <unistd.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace e2e {

/// Owns the virtual hosts: creates them, and removes them in its destructor.
class Hosts {
public:
    Hosts(const Sandbox& sandbox, int count) : sandbox_(sandbox) { call({"up", std::to_string(count)}); }
    ~Hosts() { (void)run(sandbox_, {.argv = {tool(), "down"}}); }
    Hosts(const Hosts&) = delete;
    Hosts& operator=(const Hosts&) = delete;

    [[nodiscard]] static std::string tool() { return (cluster_tools() / "hosts").string(); }

    /// Runs a command of the tool, such as {"partition", "n1", "n2"}, which must succeed.
    void call(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), tool());
        const Outcome outcome = run(sandbox_, {.argv = std::move(arguments)});
        INFO(outcome.out << outcome.err);
        REQUIRE(outcome.status.success());
    }
    /// Returns the command that runs `argv` on `host`.
    [[nodiscard]] Command on(const std::string& host, std::vector<std::string> argv) const {
        argv.insert(argv.begin(), {tool(), "exec", host, "--"});
        return {.argv = std::move(argv), .directory = sandbox_.path()};
    }

private:
    const Sandbox& sandbox_;
};

/// Returns whether the test has to be skipped, and reports why.
inline bool no_hosts_here() {
    if (!cluster_tools().empty() && ::geteuid() == 0) return false;
    WARN("SKIPPED: no tools for virtual hosts (set DDPRUN_CLUSTER_TOOLS), or not root");
    return true;
}

}  // namespace e2e
