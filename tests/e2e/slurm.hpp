#pragma once
// A SLURM cluster on virtual hosts n1, n2, … with the login node ctl, on a machine that has the tools for it.

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"
#include "tests/e2e/process.hpp"

namespace e2e {

/// Lets the user nobody write to the sandbox, and returns a new home directory of that user there.
inline std::string home_of_nobody(const Sandbox& sandbox) {
    const auto home = sandbox.path() / "home";
    std::filesystem::create_directory(home);
    REQUIRE(::chown(home.c_str(), 65534, 65534) == 0);
    for (const auto& folder : {sandbox.path(), sandbox.path() / "tmp"}) REQUIRE(::chmod(folder.c_str(), 0777) == 0);
    return home.string();
}

/// Owns the cluster: starts it, and removes it in its destructor.
class Slurm {
public:
    Slurm(const Sandbox& sandbox, int nodes, std::vector<std::string> options = {}) : sandbox_(sandbox) {
        options.insert(options.begin(), {"up", std::to_string(nodes)});
        call(std::move(options));
    }
    ~Slurm() { (void)run(sandbox_, {.argv = {tool(), "down"}}); }
    Slurm(const Slurm&) = delete;
    Slurm& operator=(const Slurm&) = delete;

    [[nodiscard]] static std::string tool() { return (cluster_tools() / "slurm").string(); }

    /// Runs a command of the tool, such as {"kill-node", "n1"}, which must succeed. Returns its output.
    std::string call(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), tool());
        const Outcome outcome =
            run(sandbox_, {.argv = std::move(arguments)}, Seconds(240));  // the first installs SLURM
        INFO(outcome.out << outcome.err);
        REQUIRE(outcome.status.success());
        return outcome.out;
    }
    /// Returns the command that runs `argv` on the login node, where srun, sbatch and scancel are. An ordinary user
    /// needs a home directory: home_of_nobody().
    [[nodiscard]] Command login(std::vector<std::string> argv, const std::string& user = "root") const {
        argv.insert(argv.begin(), {tool(), "exec", "-u", user, "--"});
        return {.argv = std::move(argv), .directory = sandbox_.path()};
    }

private:
    const Sandbox& sandbox_;
};

/// Checks that no process has outlived its job.
inline void check_no_leftovers(const Slurm& slurm) { CHECK(slurm.call({"logs", "leftovers"}) == ""); }

}  // namespace e2e
