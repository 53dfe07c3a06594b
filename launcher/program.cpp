#include "launcher/program.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

bool is_executable_file(const fs::path& path) {
    std::error_code ignored;   // a file that cannot be looked at cannot be executed either
    return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

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

/// A file that the user named with its folder.
Result<std::string> program_at(const std::string& path) {
    std::error_code ec;
    const fs::file_status status = fs::status(path, ec);
    if (!fs::exists(status)) {
        return Error{Errc::kNotFound, fmt::format("no program {}: {}. Check the path; a relative one starts in {}.", path,
                                                  ec ? ec.message() : "No such file or directory", fs::current_path().string())};
    }
    if (fs::is_directory(status)) return Error{Errc::kRefused, fmt::format("cannot execute {}: it is a folder.", path)};
    if (!is_executable_file(path)) {
        return Error{Errc::kRefused, fmt::format("cannot execute {}: {}. Make it executable (chmod +x), or name its interpreter: "
                                                 "ddprun [options] bash {}.", path, std::strerror(EACCES), path)};
    }
    return path;
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
        return Error{Errc::kRefused, fmt::format("cannot execute {}: {}. It is the only file of that name on PATH; make it "
                                                 "executable (chmod +x).", unusable, std::strerror(EACCES))};
    }
    std::error_code ignored;
    const std::string hint = fs::exists(name, ignored)
        ? fmt::format("There is a file of that name here: write ./{}.", name)
        : "Check the spelling, or give its path.";
    return Error{Errc::kNotFound, fmt::format("no program '{}' on PATH ({}){}. {}", name, search.path,
                                              search.own_folder.empty() ? "" : fmt::format(" or in {}", search.own_folder.string()),
                                              hint)};
}

Result<void> check_script(const std::string& script) {
    std::error_code ec;
    const fs::file_status status = fs::status(script, ec);
    if (!fs::exists(status)) {
        return Error{Errc::kNotFound, fmt::format("no script {}: {}. Check the path; a relative one starts in {}.", script,
                                                  ec ? ec.message() : "No such file or directory", fs::current_path().string())};
    }
    if (fs::is_directory(status)) return Error{Errc::kRefused, fmt::format("cannot run {}: it is a folder.", script)};
    if (::access(script.c_str(), R_OK) != 0) {
        return Error{Errc::kRefused, fmt::format("cannot read the script {}: {}.", script, std::strerror(errno))};
    }
    return {};
}

Result<std::string> find_python(const Environment& environment, const SearchPath& search) {
    const auto it = environment.find("PYTHON_EXEC");
    const bool chosen = it != environment.end() && !it->second.empty();
    auto python = find_program(chosen ? it->second : "python3", search);
    if (!python) {
        return with_context(chosen ? "PYTHON_EXEC" : "a Python program needs an interpreter (PYTHON_EXEC names another one than "
                                                     "python3)", python.error());
    }
    return python;
}

}  // namespace

SearchPath search_path(const Environment& environment, const fs::path& folder) {
    const auto it = environment.find("PATH");
    return {it == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : it->second, folder};
}

Result<std::vector<std::string>> worker_command(const Options& options, const Environment& environment,
                                                const SearchPath& search) {
    const std::string& name = options.program.front();
    const bool script = !options.module && !options.no_python && name.ends_with(".py");
    std::vector<std::string> command;
    if (script || options.module) {
        if (script) {
            if (const Result<void> usable = check_script(name); !usable) return usable.error();
        }
        auto python = find_python(environment, search);
        if (!python) return python.error();
        command = {*python, "-u"};   // unbuffered: a line that was printed before a crash must not be lost
        if (options.module) command.push_back("-m");
        command.push_back(name);
    } else {
        auto path = find_program(name, search);
        if (!path) return path.error();
        command = {*path};
    }
    command.insert(command.end(), options.program.begin() + 1, options.program.end());
    return command;
}

fs::path own_folder() {
    std::error_code ec;
    const fs::path self = fs::read_symlink("/proc/self/exe", ec);
    if (ec) throw ErrorException(system_error("cannot find out where ddprun is installed: reading /proc/self/exe", ec.value()));
    return self.parent_path();
}

Result<fs::path> own_program(const fs::path& folder, std::string_view name) {
    const fs::path path = folder / name;
    if (is_executable_file(path)) return path;
    return Error{Errc::kNotFound, fmt::format("{} is missing: the programs of ddprun belong into one folder. Install or build it "
                                              "again.", path.string())};
}

}  // namespace ddprun::launcher
