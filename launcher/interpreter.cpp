#include "launcher/interpreter.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <utility>

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

/// Returns the value of a variable; null: it is not set, or empty.
const std::string* value_of(const Environment& environment, std::string_view name) {
    const auto it = environment.find(name);
    return it == environment.end() || it->second.empty() ? nullptr : &it->second;
}

/// Returns the interpreter without PYTHON_EXEC.
Result<Interpreter> default_python(const Environment& environment, const SearchPath& search) {
    // `pip install` has put ddprun beside the Python for which it installs packages: scripts expect that one.
    const fs::path own = search.own_folder / "python3";
    std::error_code ignored;
    if (!search.own_folder.empty() && fs::exists(search.own_folder / "../share/ddprun/wheel", ignored) &&
        is_executable_file(own))
        return Interpreter{own, "for which pip has installed ddprun"};
    std::string skipped;
    for (const std::string_view variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
        const std::string* const folder = value_of(environment, variable);
        if (folder == nullptr) continue;
        for (const char* name : {"bin/python3", "bin/python"}) {
            const fs::path path = fs::path(*folder) / name;
            if (is_executable_file(path)) return Interpreter{path, fmt::format("from {}{}", variable, skipped)};
        }
        skipped += fmt::format("; {}={} has no usable bin/python3 or bin/python", variable, *folder);
    }
    auto python = find_program("python3", search);
    if (!python) return python.error();
    return Interpreter{std::move(*python), fmt::format("the first python3 on PATH{}", skipped)};
}

/// Returns the advice for an unusable PYTHON_EXEC: to unset it if there is another Python, or else to set it to the
/// path of one.
std::string python_advice(const Environment& environment, const SearchPath& search) {
    const Result<Interpreter> found = default_python(environment, {search.path, {}});
    if (!found) return "Set PYTHON_EXEC to the path of a Python; PATH has no python3 either.";
    return fmt::format("Unset PYTHON_EXEC to use {}, or set it to the path of another Python.", found->path);
}

/// Returns the error for an unusable PYTHON_EXEC. It replaces `why`, which does not mention PYTHON_EXEC: the user would
/// look for the cause in the script.
Error wrong_python(const std::string& named, const Error& why, const Environment& environment,
                   const SearchPath& search) {
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
    return {why.code, fmt::format("PYTHON_EXEC={}: cannot run Python programs with that interpreter: {}{}. {}", named,
                                  what, has_arguments ? "; it takes one program, without arguments" : "",
                                  python_advice(environment, search))};
}

}  // namespace

Result<Interpreter> find_python(const Environment& environment, const SearchPath& search) {
    if (const std::string* const named = value_of(environment, "PYTHON_EXEC")) {
        auto python = find_program(*named, search);
        if (!python) return wrong_python(*named, python.error(), environment, search);
        return Interpreter{std::move(*python), "from PYTHON_EXEC"};
    }
    auto python = default_python(environment, search);
    if (python) return python;
    return with_context("a Python program needs an interpreter (PYTHON_EXEC names another one than python3)",
                        python.error());
}

}  // namespace ddprun::launcher
