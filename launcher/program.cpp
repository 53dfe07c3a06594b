#include "launcher/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "common/fnv.hpp"
#include "common/text/cut.hpp"
#include "common/text/escape.hpp"
#include "common/text/words.hpp"

namespace fs = std::filesystem;

namespace ddprun::launcher {

Result<WorkerCommand> worker_command(const Options& options, const Environment& environment, const SearchPath& search) {
    const std::string& name = options.program.front();
    const bool script = options.run_path || (!options.module && !options.no_python && name.ends_with(".py"));
    WorkerCommand command;
    if (script || options.module) {
        if (script) {
            if (const Result<void> usable = check_script(name); !usable) return usable.error();
        }
        auto python = find_python(environment, search);
        if (!python) return python.error();
        command.argv = {python->path, "-u"};  // unbuffered: a line that was printed before a crash must not be lost
        if (!script) command.argv.push_back("-m");
        command.argv.push_back(name);
        command.python = std::move(*python);
    } else {
        auto path = find_program(name, search);
        if (!path) return path.error();
        command.argv = {std::move(*path)};
    }
    command.argv.insert(command.argv.end(), options.program.begin() + 1, options.program.end());
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
        line += fmt::format("{}{}", line.empty() ? "" : " ", escape_controls(without_secret(word, before)));
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
