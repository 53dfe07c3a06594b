#pragma once
// WorkerProgram: one of the programs of a node, which the launcher has resolved. Plain values, and which workers run
// it.

#include <cstddef>
#include <string>
#include <vector>

#include "common/ids.hpp"

namespace ddprun::agent {

/// A program and its workers on this node.
struct WorkerProgram {
    std::vector<std::string> command;  ///< argv of a worker; command[0] was resolved to a path by the launcher
    int slots = 1;                     ///< its workers on this node
    int max_restarts = 0;              ///< how many failures of workers of its role the job answers by a restart
    std::string role = "default";
    std::string name = {};  ///< in messages; empty: the file name of command[0]
};

/// The place of a worker among those of its program on this node.
struct ProgramRank {
    std::size_t program = 0;  ///< index
    int rank = 0;             ///< from 0 up
};

/// Returns the number of workers of all `programs`.
[[nodiscard]] int slots_of(const std::vector<WorkerProgram>& programs);

/// Returns the program of a worker: local ranks follow the order of `programs`, which have such a worker.
[[nodiscard]] ProgramRank program_rank(const std::vector<WorkerProgram>& programs, LocalRank rank);

/// Returns the role of a worker.
[[nodiscard]] const std::string& role_of(const std::vector<WorkerProgram>& programs, LocalRank rank);

/// Returns the name of a program in messages.
[[nodiscard]] std::string name_of(const WorkerProgram& program);

}  // namespace ddprun::agent
