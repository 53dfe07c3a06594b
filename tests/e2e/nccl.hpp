#pragma once
// Jobs over the fakes of NCCL and the CUDA driver.

#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/process.hpp"

namespace e2e {

/// Returns the command of a job on one node whose ranks find the fakes. `faults`: of the fake NCCL, in checks.hpp.
inline Command nccl_job(int ranks, const std::vector<std::string>& program, const std::string& faults = "") {
    Command command{.argv = {launcher().string(), "--nproc-per-node", std::to_string(ranks)}};
    command.argv.insert(command.argv.end(), program.begin(), program.end());
    command.env = {{"LD_LIBRARY_PATH", FAKE_GPU_FOLDER}};
    if (!faults.empty()) command.env["DDP_FAKE_NCCL_FAULTS"] = faults;
    return command;
}

inline std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

}  // namespace e2e
