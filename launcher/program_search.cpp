#include "launcher/program_search.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include "common/text/number.hpp"
#include "common/text/words.hpp"

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

std::vector<fs::path> folders_of(const SearchPath& search) {
    std::vector<fs::path> folders;
    std::string_view rest = search.path;
    while (true) {
        const std::string_view folder = rest.substr(0, rest.find(':'));
        folders.emplace_back(folder.empty() ? "." : folder);
        if (folder.size() == rest.size()) break;
        rest.remove_prefix(folder.size() + 1);
    }
    if (!search.own_folder.empty()) folders.push_back(search.own_folder);
    return folders;
}

constexpr std::size_t kMinTypedForHint = 4;  // a shorter name resembles too many others
constexpr std::size_t kMaxNamesForHint = 20'000;

/// Returns " Did you mean train?" from the files of `folders`; empty when none resembles `typed`.
std::string nearest_file(const std::string& typed, const std::vector<fs::path>& folders) {
    if (typed.size() < kMinTypedForHint) return "";
    std::vector<std::string> names;
    for (const fs::path& folder : folders) {
        std::error_code ignored;  // PATH may name folders that do not exist
        for (fs::directory_iterator entry(folder, ignored), end; entry != end && names.size() < kMaxNamesForHint;
             entry.increment(ignored)) {
            names.push_back(entry->path().filename().string());
        }
    }
    std::ranges::sort(names);  // the same hint every time
    return did_you_mean(typed, names);
}

std::string nearest_file_beside(const fs::path& path) {
    return nearest_file(path.filename().string(), {path.has_parent_path() ? path.parent_path() : fs::path(".")});
}

/// Returns the first line of a script that names its interpreter ("#!/usr/bin/env python3"); empty: there is none.
std::string interpreter_line(const std::string& path) {
    constexpr std::streamsize kMaxBytes = 256;  // as many as the kernel reads
    std::string line(kMaxBytes, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(line.data(), kMaxBytes);
    line.resize(static_cast<std::size_t>(file.gcount()));
    return line.starts_with("#!") ? line.substr(0, line.find('\n')) : "";
}

bool is_python_script(const std::string& path) { return interpreter_line(path).find("python") != std::string::npos; }

/// Returns what to write instead of the name of a file that is not executable.
std::string advice_for_script(const std::string& path) {
    if (is_python_script(path))
        return fmt::format("It is a Python script: write ddprun [options] --run-path {}.", path);
    const std::string python =
        interpreter_line(path).empty() ? fmt::format("; a Python script: --run-path {}", path) : "";
    return fmt::format("Make it executable (chmod +x), or name its interpreter: ddprun [options] bash {}{}.", path,
                       python);
}

/// Checks a program that the user named with its folder.
Result<std::string> program_at(const std::string& path) {
    std::error_code ec;
    const fs::file_status status = fs::status(path, ec);
    if (!fs::exists(status)) {
        return Error{Errc::kNotFound, fmt::format("no program {}: {}.{} Check the path; a relative one starts in {}.",
                                                  path, ec ? ec.message() : "No such file or directory",
                                                  nearest_file_beside(path), current_folder())};
    }
    if (fs::is_directory(status)) return Error{Errc::kRefused, fmt::format("cannot execute {}: it is a folder.", path)};
    if (!is_executable_file(path)) {
        return Error{Errc::kRefused,
                     fmt::format("cannot execute {}: {}. {}", path, std::strerror(EACCES), advice_for_script(path))};
    }
    return path;
}

std::string hint_for_missing(const std::string& name, const SearchPath& search) {
    if (name.find_first_not_of("0123456789") == std::string::npos)
        return " --local-nodes and --standalone take no number: the number of nodes is --nnodes.";
    std::error_code ignored;
    if (fs::is_regular_file(name, ignored) && is_python_script(name)) {
        return fmt::format(
            " There is a Python script of that name in this directory: write ddprun [options] --run-path {}.", name);
    }
    if (is_executable_file(name)) return fmt::format(" There is one in this directory: write ./{}.", name);
    if (fs::is_regular_file(name, ignored)) {
        return fmt::format(
            " There is a file of that name in this directory, which is not executable: chmod +x {}, then write ./{}; a "
            "Python script: --run-path {}.",
            name, name, name);
    }
    if (fs::is_regular_file(name + ".py", ignored))
        return fmt::format(" There is {}.py in this directory: write that.", name);
    const std::string near = nearest_file(name, folders_of(search));
    return near.empty() ? " Check the spelling, or give its path." : near;
}

}  // namespace

SearchPath search_path(const Environment& environment, const fs::path& folder) {
    const auto it = environment.find("PATH");
    return {it == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : it->second, folder};
}

Result<std::string> find_program(const std::string& name, const SearchPath& search) {
    if (name.find('/') != std::string::npos) return program_at(name);
    std::string unusable;
    for (const fs::path& folder : folders_of(search)) {
        const fs::path candidate = folder / name;
        if (is_executable_file(candidate)) return candidate.string();
        std::error_code ignored;
        if (unusable.empty() && fs::is_regular_file(candidate, ignored)) unusable = candidate.string();
    }
    if (!unusable.empty()) {
        return Error{Errc::kRefused,
                     fmt::format("cannot execute {}: {}. It is the only file of that name on PATH; make it "
                                 "executable (chmod +x).",
                                 unusable, std::strerror(EACCES))};
    }
    const std::size_t folders = folders_of({search.path, {}}).size();
    return Error{Errc::kNotFound,
                 fmt::format("no program '{}': not found in the {} of PATH.{}", name,
                             counted(folders, "directory", "directories"), hint_for_missing(name, search))};
}

Result<void> check_script(const std::string& script) {
    std::error_code ec;
    const fs::file_status status = fs::status(script, ec);
    if (!fs::exists(status)) {
        return Error{Errc::kNotFound, fmt::format("no script {}: {}.{} Check the path; a relative one starts in {}.",
                                                  script, ec ? ec.message() : "No such file or directory",
                                                  nearest_file_beside(script), current_folder())};
    }
    if (fs::is_directory(status)) return Error{Errc::kRefused, fmt::format("cannot run {}: it is a folder.", script)};
    if (::access(script.c_str(), R_OK) != 0) {
        return Error{Errc::kRefused, fmt::format("cannot read the script {}: {}.", script, std::strerror(errno))};
    }
    return {};
}

bool is_executable_file(const fs::path& path) {
    std::error_code ignored;  // a file that cannot be inspected cannot be executed either
    return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::string current_folder() {
    std::error_code ec;
    const fs::path folder = fs::current_path(ec);
    return ec ? "a directory that was deleted" : folder.string();
}

}  // namespace ddprun::launcher
