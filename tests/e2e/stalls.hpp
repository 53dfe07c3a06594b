#pragma once
// Jobs that stand still, and the line that they say.

#include <signal.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace e2e {

inline std::vector<std::string> line(const std::vector<std::string>& options, const std::vector<std::string>& program) {
    std::vector<std::string> argv{(bin() / "ddprun").string()};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), program.begin(), program.end());
    return argv;
}

struct Said {
    std::string line;
    std::string out;  ///< of the workers
};

/// What a job of two ranks on two emulated nodes says when it runs into that stall: its first line that begins with
/// `verdict`. Lines before it may be true: a busy machine may keep some rank waiting at the start. It is left alone
/// until its workers have printed `printed`, too.
inline Said said(const Sandbox& sandbox, const std::vector<std::string>& program, const std::string& verdict,
                 const std::string& warning = "2", const std::string& printed = "") {
    Process job(sandbox,
                {.argv = line({"--nnodes", "2", "--nproc_per_node", "1", "--local-nodes", "--stall-warning", warning},
                              program)});
    std::string found;
    const bool told = eventually(Seconds(60), [&] {
        const std::string err = job.err();
        const auto at = err.find(verdict);
        const auto end = at == std::string::npos ? at : err.find('\n', at);
        if (end != std::string::npos) found = err.substr(at, end - at);
        return (!found.empty() && job.out().find(printed) != std::string::npos) || !job.running();
    });
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    CHECK(told);
    CHECK(found != "");
    job.signal(SIGINT);
    CHECK(job.wait(Seconds(60)).exit_code() == 130);
    return {found, job.out()};
}

}  // namespace e2e
