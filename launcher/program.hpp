#pragma once
// From what the user typed to the argv of a worker: which file is executed, and whether Python runs it. Also finds the
// programs that belong to ddprun. Asks the file system, changes nothing.

#include <filesystem>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "launcher/options.hpp"

namespace ddprun::launcher {

/// Where programs are looked for.
struct SearchPath {
    std::string path;                  ///< as PATH: folders by colon, an empty one is the current folder
    std::filesystem::path own_folder;  ///< of ddprun itself, asked after PATH; empty: none
};

[[nodiscard]] SearchPath search_path(const Environment& environment, const std::filesystem::path& own_folder);

/// argv of a worker; the first word is a path. A name with a slash is that file; another one is looked for on PATH,
/// then beside ddprun. "*.py" runs under `$PYTHON_EXEC -u` (default python3), a module under `-u -m`; see --no-python
/// and --module. Errors: Errc::kNotFound (exit code 127) or Errc::kRefused (126: there, but not executable or not
/// readable).
[[nodiscard]] Result<std::vector<std::string>> worker_command(const Options& options, const Environment& environment,
                                                              const SearchPath& search);

/// What people call the program, for messages: "train", "train.py (python3)" also for `python3 train.py` as typed, "-m
/// pkg (python3)". `command` is what worker_command() made of the options.
[[nodiscard]] std::string program_name(const Options& options, const std::vector<std::string>& command);

/// The program with its arguments as typed, cut, for the box at the end, without what "--wandb-key", "--api-token" and
/// such take; empty: it has none.
[[nodiscard]] std::string program_line(const Options& options);

/// The folder of the running executable. Throws ErrorException when /proc cannot say.
[[nodiscard]] std::filesystem::path own_folder();

/// A program of ours that is installed beside ddprun. Errors: Errc::kNotFound.
[[nodiscard]] Result<std::filesystem::path> own_program(const std::filesystem::path& folder, std::string_view name);

}  // namespace ddprun::launcher
