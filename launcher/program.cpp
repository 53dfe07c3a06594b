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

Result<WorkerCommand> worker_command(const Program& program, const Environment& environment, const SearchPath& search) {
    const std::string& name = program.command.front();
    const bool script = program.run_path || (!program.module && !program.no_python && name.ends_with(".py"));
    WorkerCommand command;
    if (program.check) {  // not from PATH: it has the version of this ddprun
        const fs::path path = search.own_folder / name;
        if (!is_executable_file(path)) {
            return Error{
                Errc::kNotFound,
                fmt::format("{} is missing: it belongs beside ddprun. Install or build it again.", path.string())};
        }
        command.argv = {path.string()};
    } else if (script || program.module) {
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
    command.argv.insert(command.argv.end(), program.command.begin() + 1, program.command.end());
    return command;
}

std::string program_name(const Program& program, const std::vector<std::string>& command) {
    const std::string executed = fs::path(command.front()).filename().string();
    const std::string& name = program.command.front();
    if (program.module && !program.run_path) return fmt::format("-m {} ({})", name, executed);
    const bool is_script = program.run_path || (!program.no_python && name.ends_with(".py"));
    if (command.size() > 1 && command[1] == "-u" && is_script) {
        return fmt::format("{} ({})", fs::path(name).filename().string(), executed);
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

constexpr std::size_t kMaxTypedBytes = 200;  // of a line in a message

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

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

/// Returns the end of a value in a shell script that begins at `at`: a blank outside quotes, or the end of `text`.
std::size_t end_of_value(std::string_view text, std::size_t at) {
    char quote = 0;
    for (; at < text.size() && (quote != 0 || !is_blank(text[at])); ++at) {
        const char c = text[at];
        if (c == '\\' && quote != '\'')
            ++at;
        else if (quote == 0 && (c == '\'' || c == '"'))
            quote = c;
        else if (c == quote)
            quote = 0;
    }
    return std::min(at, text.size());
}

/// Returns `word` without the values in "API_KEY=x" and the like anywhere in it. With no blank before the name, the
/// value is the rest of the word.
std::string without_secret_values(const std::string& word) {
    const auto in_name = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
    };
    std::string result;
    std::size_t done = 0;
    const auto first_blank = static_cast<std::size_t>(std::ranges::find_if(word, is_blank) - word.begin());
    for (auto equals = word.find('='); equals != word.npos; equals = word.find('=', std::max(equals + 1, done))) {
        auto name = equals;
        while (name > done && in_name(word[name - 1])) --name;
        if (!is_secret(word.substr(name, equals - name))) continue;
        result += word.substr(done, equals + 1 - done) + "***";
        done = equals < first_blank ? word.size() : end_of_value(word, equals + 1);
    }
    return result + word.substr(done);
}

/// Returns `word` without user and password of the URLs in it ("https://user:password@host/").
std::string without_userinfo(std::string word) {
    for (auto at = word.find("://"); at != word.npos; at = word.find("://", at)) {
        at += 3;
        const auto end = std::min(word.find_first_of("/?#'\" \t\n", at), word.size());
        const auto sign = std::string_view(word).substr(at, end - at).rfind('@');
        if (sign != word.npos) word.replace(at, sign, "***");
    }
    return word;
}

std::string without_secret(const std::string& word, const std::string& before) {
    // "--use-key --lr 1": that was a switch, without a value
    const bool hidden = is_option(before) && is_secret(before) && !word.starts_with("--");
    return hidden ? "***" : without_userinfo(without_secret_values(word));
}

/// Returns the words as a shell takes them; secrets are replaced by ***.
std::string shell_line(const std::vector<std::string>& words) {
    std::string line;
    std::string before;
    for (const std::string& word : words) {
        line += fmt::format("{}{}", line.empty() ? "" : " ", shell_word(without_secret(word, before)));
        before = word;
    }
    return line;
}

std::string typed_line(const Program& program) {
    return (program.module && !program.run_path ? "-m " : "") + shell_line(program.command);
}

}  // namespace

std::string typed_command(const Program& program) { return log_line(typed_line(program), kMaxTypedBytes); }

std::string typed_command(const std::vector<Program>& programs) {
    std::string line;
    for (const Program& program : programs) line += (line.empty() ? "" : " : ") + typed_line(program);
    return log_line(line, kMaxTypedBytes);
}

std::string started_command(const std::vector<ResolvedProgram>& programs) {
    constexpr std::size_t kMaxBytes = 64u << 10;
    std::string line;
    for (const ResolvedProgram& program : programs)
        line += (line.empty() ? "" : " : ") + shell_line(program.command.argv);
    return cut(line, kMaxBytes);
}

std::uint64_t command_hash(const std::vector<Program>& programs) {
    Fnv64 hash;
    for (const Program& program : programs) {
        for (const bool flag : {program.module, program.run_path, program.no_python}) hash.add_number(flag ? 1 : 0);
        hash.add_number(program.command.size());
        for (const std::string& word : program.command) {
            hash.add_number(word.size());
            hash.add(word);
        }
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

}  // namespace ddprun::launcher
