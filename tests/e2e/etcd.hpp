#pragma once
// A real etcd on this machine, where the tool for it exists, and one with TLS and users, where its program is
// installed.

#include <filesystem>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace e2e {

/// Owns an etcd cluster: starts it, and removes it in its destructor.
class Etcd {
public:
    explicit Etcd(const Sandbox& sandbox, int members = 1) : sandbox_(sandbox) {
        call({"up", std::to_string(members)});
    }
    ~Etcd() { (void)run(sandbox_, {.argv = {tool(), "down"}}); }
    Etcd(const Etcd&) = delete;
    Etcd& operator=(const Etcd&) = delete;

    [[nodiscard]] static std::string tool() { return (cluster_tools() / "etcd").string(); }

    /// Runs a command of the tool, such as {"kill", "1"}, which must succeed. Returns its output.
    std::string call(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), tool());
        const Outcome outcome = run(sandbox_, {.argv = std::move(arguments)}, Seconds(240));
        INFO(outcome.out << outcome.err);
        REQUIRE(outcome.status.success());
        return outcome.out;
    }
    /// Returns "127.0.0.1:23790", with a comma between several.
    [[nodiscard]] std::string endpoints() const {
        std::string text = call({"endpoints"});
        while (text.ends_with('\n')) text.pop_back();
        for (auto at = text.find("http://"); at != std::string::npos; at = text.find("http://")) text.erase(at, 7);
        return text;
    }

private:
    const Sandbox& sandbox_;
};

/// Returns whether the test has to be skipped, and reports why.
inline bool no_etcd_here() {
    if (!cluster_tools().empty() && ::geteuid() == 0) return false;
    WARN("SKIPPED: no tool for etcd (set DDPRUN_CLUSTER_TOOLS), or not root");
    return true;
}

}  // namespace e2e
