#pragma once
// Turns the program that the user typed into the argv of a worker: which file is executed, and whether Python runs it.
// Also finds the programs that belong to ddprun. Reads the file system, changes nothing.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "launcher/interpreter.hpp"
#include "launcher/options/options.hpp"
#include "launcher/program_search.hpp"

namespace ddprun::launcher {

/// The command of a program's workers.
struct WorkerCommand {
    std::vector<std::string> argv;  ///< the first element is a path
    Interpreter python;             ///< of a Python script or module
};

/// A program of the command line as this machine runs it.
struct ResolvedProgram {
    WorkerCommand command;
    int slots = 1;  ///< its workers on a node
};

/// Returns the command of a program's workers. A name with a slash is that file; another one is searched on PATH, then
/// beside ddprun. "*.py" runs under the interpreter of find_python() with -u, a module with -u -m; see --no-python and
/// --module. Errors: Errc::kNotFound (exit code 127) or Errc::kRefused (126: it exists, but is not executable or not
/// readable).
[[nodiscard]] Result<WorkerCommand> worker_command(const Program& program, const Environment& environment,
                                                   const SearchPath& search);

/// Returns the program's name for messages: "train", "train.py (python3)" also for `python3 train.py` as typed, "-m pkg
/// (python3)". `command` is the argv of worker_command().
[[nodiscard]] std::string program_name(const Program& program, const std::vector<std::string>& command);

/// Returns the program with its arguments as typed, a module with "-m", cut, for messages. Secrets are replaced by ***:
/// the values in "--wandb-key X", "--api-token=X" and, anywhere in a word, "API_KEY=X"; user and password of URLs.
[[nodiscard]] std::string typed_command(const Program& program);
/// Returns all programs so, "trainer --lr 1 : server", cut.
[[nodiscard]] std::string typed_command(const std::vector<Program>& programs);

/// Returns what the workers of all programs execute, as a shell takes it, "/usr/bin/python3 -u train.py --lr 1", with
/// " : " between programs, cut after 64 KiB. Secrets are replaced as above.
[[nodiscard]] std::string started_command(const std::vector<ResolvedProgram>& programs);

/// Returns a hash of all programs as typed. Nodes of one job compare it.
[[nodiscard]] std::uint64_t command_hash(const std::vector<Program>& programs);

/// Returns the folder of the running executable. Throws ErrorException when /proc cannot be read.
[[nodiscard]] std::filesystem::path own_folder();

}  // namespace ddprun::launcher
