#pragma once
// Finds programs by name, and checks the files that a user has named. Used by program.cpp and interpreter.cpp. Reads
// the file system, changes nothing.

#include <filesystem>
#include <string>

#include "common/error.hpp"
#include "common/system/process.hpp"

namespace ddprun::launcher {

/// The folders in which programs are searched.
struct SearchPath {
    std::string path;                  ///< like PATH: folders separated by colons, an empty one is the current folder
    std::filesystem::path own_folder;  ///< of ddprun itself, searched after PATH; empty: none
};

/// Returns PATH, or a usual one where it is not set, and `own_folder`.
[[nodiscard]] SearchPath search_path(const Environment& environment, const std::filesystem::path& own_folder);

/// Returns the path of the program `name`: a name with a slash is that file, another one is searched on PATH, then
/// beside ddprun. Errors: Errc::kNotFound, or Errc::kRefused if it exists and is not executable; both with advice.
[[nodiscard]] Result<std::string> find_program(const std::string& name, const SearchPath& search);

/// Checks that the Python script can be read. Errors: as find_program().
[[nodiscard]] Result<void> check_script(const std::string& script);

/// Returns whether the file exists and may be executed by this process.
[[nodiscard]] bool is_executable_file(const std::filesystem::path& path);

/// Returns the current folder, for messages about relative paths.
[[nodiscard]] std::string current_folder();

}  // namespace ddprun::launcher
