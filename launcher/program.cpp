#include "launcher/program.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include "common/fnv.hpp"
#include "common/text/cut.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

bool is_executable_file(const fs::path& path) {
    std::error_code ignored;  // a file that cannot be inspected cannot be executed either
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

std::string current_folder() {
    std::error_code ec;
    const fs::path folder = fs::current_path(ec);
    return ec ? "a directory that was deleted" : folder.string();
}

std::string nearest_file_beside(const fs::path& path) {
    return nearest_file(path.filename().string(), {path.has_parent_path() ? path.parent_path() : fs::path(".")});
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
                     fmt::format("cannot execute {}: {}. Make it executable (chmod +x), or name its interpreter: "
                                 "ddprun [options] bash {}.",
                                 path, std::strerror(EACCES), path)};
    }
    return path;
}

std::string hint_for_missing(const std::string& name, const SearchPath& search) {
    if (name.find_first_not_of("0123456789") == std::string::npos)
        return " --local-nodes and --standalone take no number: the number of nodes is --nnodes.";
    std::error_code ignored;
    if (is_executable_file(name)) return fmt::format(" There is one in this directory: write ./{}.", name);
    if (fs::is_regular_file(name, ignored)) {
        return fmt::format(
            " There is a file of that name in this directory, which is not executable: chmod +x {}, then write ./{}.",
            name, name);
    }
    if (fs::is_regular_file(name + ".py", ignored))
        return fmt::format(" There is {}.py in this directory: write that.", name);
    const std::string near = nearest_file(name, folders_of(search));
    return near.empty() ? " Check the spelling, or give its path." : near;
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

/// Returns the advice for an unusable PYTHON_EXEC: to unset it if PATH has a python3, or else to set it to the path of
/// a Python.
std::string python_advice(const SearchPath& search) {
    const Result<std::string> found = find_program("python3", {search.path, {}});
    if (!found) return "Set PYTHON_EXEC to the path of a Python; PATH has no python3 either.";
    return fmt::format("Unset PYTHON_EXEC to use {}, or set it to the path of another Python.", *found);
}

/// Returns the error for an unusable PYTHON_EXEC. It replaces `why`, which does not mention PYTHON_EXEC: the user would
/// look for the cause in the script.
Error wrong_python(const std::string& named, const Error& why, const SearchPath& search) {
    std::error_code ignored;
    const fs::path path = named;
    std::string what = "it is in no directory of PATH";
    const bool is_path = named.find('/') != std::string::npos;  // else one of that name on PATH is meant
    if (is_path && fs::is_directory(path, ignored))
        what = "that is a folder";
    else if (is_path && fs::is_regular_file(path, ignored))
        what = "that file is not executable (chmod +x)";
    else if (why.code == Errc::kRefused)
        what = "the file of that name on PATH is not executable";
    else if (is_path)
        what = fmt::format("there is no such file{}",
                           path.is_relative() ? fmt::format(" (a relative path starts in {})", current_folder()) : "");
    const bool has_arguments = named.find(' ') != std::string::npos;
    return {why.code,
            fmt::format("PYTHON_EXEC={}: cannot run Python programs with that interpreter: {}{}. {}", named, what,
                        has_arguments ? "; it takes one program, without arguments" : "", python_advice(search))};
}

Result<std::string> find_python(const Environment& environment, const SearchPath& search) {
    const auto it = environment.find("PYTHON_EXEC");
    const bool chosen = it != environment.end() && !it->second.empty();
    auto python = find_program(chosen ? it->second : "python3", search);
    if (!python && chosen) return wrong_python(it->second, python.error(), search);
    if (!python) {
        return with_context("a Python program needs an interpreter (PYTHON_EXEC names another one than python3)",
                            python.error());
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
    const bool script = options.run_path || (!options.module && !options.no_python && name.ends_with(".py"));
    std::vector<std::string> command;
    if (script || options.module) {
        if (script) {
            if (const Result<void> usable = check_script(name); !usable) return usable.error();
        }
        auto python = find_python(environment, search);
        if (!python) return python.error();
        command = {*python, "-u"};  // unbuffered: a line that was printed before a crash must not be lost
        if (!script) command.push_back("-m");
        command.push_back(name);
    } else {
        auto path = find_program(name, search);
        if (!path) return path.error();
        command = {*path};
    }
    command.insert(command.end(), options.program.begin() + 1, options.program.end());
    return command;
}

std::string program_name(const Options& options, const std::vector<std::string>& command) {
    const std::string executed = fs::path(command.front()).filename().string();
    if (options.module && !options.run_path) return fmt::format("-m {} ({})", options.program.front(), executed);
    const bool is_script = options.run_path || (!options.no_python && options.program.front().ends_with(".py"));
    if (command.size() > 1 && command[1] == "-u" && is_script) {
        return fmt::format("{} ({})", fs::path(options.program.front()).filename().string(), executed);
    }
    // An interpreter that the user named: the script's name says more. -c and -m have no file.
    for (std::size_t i = 1; i < command.size() && command[i] != "-c" && command[i] != "-m"; ++i) {
        const bool script = command[i].ends_with(".py") || command[i].ends_with(".sh");
        const bool interpreter = executed.starts_with("python") || executed.ends_with("sh");
        if (interpreter && script) return fmt::format("{} ({})", fs::path(command[i]).filename().string(), executed);
    }
    return executed;
}

namespace {

/// Returns `word`, in single quotes if a shell would not read it as one word.
std::string shell_word(const std::string& word) {
    const auto is_plain = [](unsigned char c) {
        return c >= 0x80 || std::isalnum(c) != 0 ||
               std::string_view("_@%+=:,./-").find(static_cast<char>(c)) != std::string_view::npos;
    };
    if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

/// Returns whether an option or variable of that name ("--wandb-key", "API_KEY", "logger.token") has a secret value.
bool is_secret(const std::string& name) {
    const std::string last_word =
        lower_case(name.substr(name.find_last_of("-_.") + 1));  // all of it when there is none of these
    constexpr std::array<std::string_view, 7> kSecrets{"apikey", "key", "passwd", "password", "secret", "token", "pwd"};
    return std::ranges::find(kSecrets, last_word) != kSecrets.end();
}

bool is_option(const std::string& word) { return word.starts_with('-'); }

std::string without_secret(const std::string& word, const std::string& before) {
    const auto equals = word.find('=');
    if (equals != std::string::npos && is_secret(word.substr(0, equals))) return word.substr(0, equals + 1) + "***";
    // "--use-key --lr 1": that was a switch, without a value
    const bool hidden = is_option(before) && is_secret(before) && !word.starts_with("--");
    return hidden ? "***" : shell_word(word);
}

}  // namespace

std::string typed_command(const Options& options) {
    constexpr std::size_t kMax = 200;
    std::string line;
    std::string before;
    for (const std::string& word : options.program) {
        line += fmt::format("{}{}", line.empty() ? "" : " ", without_secret(word, before));
        before = word;
    }
    if (line.size() <= kMax) return line;
    return line.substr(0, kept_bytes(line, kMax)) + " …";
}

std::uint64_t command_hash(const Options& options) {
    Fnv64 hash;
    for (const bool flag : {options.module, options.run_path, options.no_python}) hash.add_number(flag ? 1 : 0);
    for (const std::string& word : options.program) {
        hash.add_number(word.size());
        hash.add(word);
    }
    return hash.value();
}

fs::path own_folder() {
    std::error_code ec;
    const fs::path self = fs::read_symlink("/proc/self/exe", ec);
    if (ec)
        throw ErrorException(
            system_error("cannot find out where ddprun is installed: reading /proc/self/exe", ec.value()));
    return self.parent_path();
}

Result<fs::path> own_program(const fs::path& folder, std::string_view name) {
    const fs::path path = folder / name;
    if (is_executable_file(path)) return path;
    return Error{Errc::kNotFound,
                 fmt::format("{} is missing: it belongs beside ddprun. Install or build it again.", path.string())};
}

}  // namespace ddprun::launcher
