#pragma once
// Jobs that stall, and the line that they print about it.

#include <signal.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace e2e {

/// Returns the command line of `program` under ddprun with `options`.
inline std::vector<std::string> line(const std::vector<std::string>& options, const std::vector<std::string>& program) {
    std::vector<std::string> argv{(bin() / "ddprun").string()};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), program.begin(), program.end());
    return argv;
}

struct StallReport {
    std::string line;  ///< of ddprun, without its line end
    std::string out;   ///< of the workers
};

/// Runs a job of two ranks on two emulated nodes into a stall. Returns the first line that begins with `verdict`, when
/// the workers have also printed `printed`, and interrupts the job. Earlier lines may be true: on a busy machine some
/// rank may wait at the start.
inline StallReport report_of_stall(const Sandbox& sandbox, const std::vector<std::string>& program,
                                   const std::string& verdict, const std::string& warning = "2",
                                   const std::string& printed = "") {
    Process job(sandbox, {.argv = line({"--nnodes", "2", "--nproc_per_node", "1", "--local-nodes", "--stall-warning",
                                        warning, "--shutdown-timeout", "3"},
                                       program)});
    std::string found;
    const bool reported = eventually(Seconds(60), [&] {
        const std::string err = job.err();
        const auto at = err.find(verdict);
        const auto end = at == std::string::npos ? at : err.find('\n', at);
        if (end != std::string::npos) found = err.substr(at, end - at);
        return (!found.empty() && job.out().find(printed) != std::string::npos) || !job.running();
    });
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    CHECK(reported);
    CHECK(found != "");
    job.signal(SIGINT);
    CHECK(job.wait(Seconds(60)).exit_code() == 130);
    return {found, job.out()};
}

}  // namespace e2e
