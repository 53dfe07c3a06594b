#pragma once
// Jobs whose nodes meet in a directory or in etcd: their lines, and a run of one.

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace e2e {

using Words = std::vector<std::string>;
using Names = std::set<std::string>;

/// A worker that prints one line.
inline const std::string kReport = "echo rank $RANK of $WORLD_SIZE";

inline Words ddprun_line(const Words& options, const std::string& script = kReport) {
    Words line{(bin() / "ddprun").string()};
    line.insert(line.end(), options.begin(), options.end());
    line.insert(line.end(), {"sh", "-c", script});
    return line;
}

/// A directory in the sandbox in which nodes meet.
struct SharedDirectory {
    explicit SharedDirectory(const Sandbox& sandbox) : path(sandbox.path() / "shared") {
        std::filesystem::create_directory(path);
    }
    [[nodiscard]] Words options(int nodes, const Words& more = {}) const {
        Words words{"--nnodes", std::to_string(nodes), "--rdzv-id", "job", "--rdzv-dir", path.string()};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    [[nodiscard]] Names names() const {
        Names found;
        for (const auto& entry : std::filesystem::directory_iterator(path))
            found.insert(entry.path().filename().string());
        return found;
    }
    std::filesystem::path path;
};

inline Words etcd_options(const std::string& servers, int nodes, const Words& more = {}) {
    Words words{"--nnodes", std::to_string(nodes), "--rdzv-id", "job", "--rdzv-backend",
                "etcd",     "--rdzv-endpoint",     servers};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

/// Starts `nodes` ddprun at once and checks that they were one job that succeeded. Returns what they wrote to stderr.
inline std::string run_job(const Sandbox& sandbox, const Words& options, int nodes,
                           const std::map<std::string, std::string>& env = {}) {
    std::vector<std::unique_ptr<Process>> agents;
    for (int i = 0; i < nodes; ++i) {
        agents.push_back(std::make_unique<Process>(sandbox, Command{.argv = ddprun_line(options), .env = env}));
    }
    Names lines;
    Names expected;
    std::string errors;
    for (int i = 0; i < nodes; ++i) {
        const auto status = agents[static_cast<std::size_t>(i)]->wait(Seconds(60));
        errors += agents[static_cast<std::size_t>(i)]->err();
        INFO(errors);
        CHECK(status.exit_code() == 0);
        std::istringstream out(agents[static_cast<std::size_t>(i)]->out());
        for (std::string line; std::getline(out, line);) lines.insert(line);
        expected.insert(fmt::format("rank {} of {}", i, nodes));
    }
    INFO(errors);
    CHECK(lines == expected);
    return errors;
}

}  // namespace e2e
