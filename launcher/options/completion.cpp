#include "launcher/options/completion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "launcher/options/option_table.hpp"

namespace ddprun::launcher {
namespace {

/// One option as the shells see it.
struct Completed {
    std::string name;                ///< without dashes
    char letter = 0;                 ///< 0: none
    std::string_view value;          ///< as of OptionRow; empty: a flag
    std::vector<std::string> words;  ///< the values that can be completed
    std::string help;                ///< as of short_help()

    [[nodiscard]] bool takes_value() const { return !value.empty(); }
    [[nodiscard]] bool takes_folder() const { return value == "DIR"; }
    [[nodiscard]] bool takes_file() const { return value == "FILE"; }
};

/// Returns the alternatives of a form such as "N|cpu|gpu" that are typed as they are written: "cpu", "gpu".
std::vector<std::string> words_of(std::string_view form) {
    std::vector<std::string> words;
    for (bool more = !form.empty(); more;) {
        const auto bar = form.find('|');
        const std::string_view word = form.substr(0, bar);
        const bool literal = word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
        if (literal && !word.empty()) words.emplace_back(word);
        more = bar != std::string_view::npos;
        if (more) form.remove_prefix(bar + 1);
    }
    return words;
}

/// Returns the first clause of a help text, without characters that a shell would interpret within single quotes or in
/// brackets.
std::string short_help(std::string_view help) {
    std::string text;
    for (const char c : help.substr(0, help.find_first_of("(;"))) {
        if (c == '\'')
            text += "\u2019";
        else if (std::string_view("\"[]`$\\!").find(c) == std::string_view::npos)
            text += c;
    }
    while (text.ends_with(' ')) text.pop_back();
    return text;
}

std::vector<Completed> completed_options() {
    std::vector<Completed> options;
    for (const OptionRow& row : option_table()) {
        if (row.group.empty()) continue;
        options.push_back({std::string(row.name), row.letter, row.value, words_of(row.value), short_help(row.help)});
    }
    options.push_back({"print-completion", 0, kShells, words_of(kShells), "print a script for a shell"});
    options.push_back({"help", 'h', "", {}, "print all options"});
    options.push_back({"version", 0, "", {}, "print the version"});
    return options;
}

/// Returns the options that `select` accepts as they are typed, "--redirects" and "-r", joined by `separator`.
template <typename Predicate>
std::string typed(const std::vector<Completed>& options, std::string_view separator, Predicate select) {
    std::vector<std::string> names;
    for (const Completed& option : options) {
        if (!select(option)) continue;
        names.push_back(fmt::format("--{}", option.name));
        if (option.letter != 0) names.push_back(fmt::format("-{}", option.letter));
    }
    return fmt::format("{}", fmt::join(names, separator));
}

bool any(const Completed&) { return true; }
bool has_value(const Completed& option) { return option.takes_value(); }

/// The pattern of a shell's case for one option.
std::string pattern(const Completed& option) {
    return option.letter == 0 ? fmt::format("--{}", option.name) : fmt::format("--{}|-{}", option.name, option.letter);
}

// Bash splits words at '=' and ':', so the words are read from the line itself. No reply means: complete files.
std::string bash_script(const std::vector<Completed>& options) {
    std::string cases;
    for (const Completed& option : options) {
        if (option.takes_folder())
            cases += fmt::format("        {}) COMPREPLY=($(compgen -d -- \"$current\")) ;;\n", pattern(option));
        if (!option.words.empty()) {
            cases += fmt::format("        {}) COMPREPLY=($(compgen -W '{}' -- \"$current\")) ;;\n", pattern(option),
                                 fmt::join(option.words, " "));
        }
    }
    return fmt::format(R"(# Completion of ddprun for bash: source <(ddprun --print-completion bash)
_ddprun() {{
    local line=${{COMP_LINE:0:COMP_POINT}} current='' option='' name='' word json=''
    local -a words
    read -ra words <<< "$line"
    if [[ $line != *[[:space:]] ]]; then
        current=${{words[-1]}}
        unset 'words[-1]'
    fi
    COMPREPLY=()
    for word in "${{words[@]:1}}"; do
        if [[ -n $option ]]; then option=''; continue; fi
        name=${{word%%=*}}
        name=${{name//_/-}}
        case $name in
            --) return ;;
            {}) [[ $word == *=* ]] || option=$name ;;
            --json) [[ -z $json ]] || [[ $word == *=* ]] || option=$name ;;
            -?*) ;;
            check) [[ -z $json ]] || return; json=--json ;;
            *) return ;;
        esac
    done
    if [[ -z $option && $current == --*=* ]]; then
        option=${{current%%=*}}
        option=${{option//_/-}}
        current=${{current#*=}}
    fi
    case $option in
        '') [[ $current != -* ]] || COMPREPLY=($(compgen -W "{} $json" -- "${{current//_/-}}")) ;;
{}    esac
}}
complete -o bashdefault -o default -F _ddprun ddprun
)",
                       typed(options, "|", has_value), typed(options, " ", any), cases);
}

std::string zsh_script(const std::vector<Completed>& options) {
    std::string specs;
    for (const Completed& option : options) {
        std::string action;
        if (option.takes_value()) {
            action = fmt::format(":{}:{}", option.name,
                                 option.takes_folder()  ? "_files -/"
                                 : option.takes_file()  ? "_files"
                                 : option.words.empty() ? " "
                                                        : fmt::format("({})", fmt::join(option.words, " ")));
        }
        const std::string_view equals = option.takes_value() ? "=" : "";
        specs += fmt::format("        '--{}{}[{}]{}' \\\n", option.name, equals, option.help, action);
        if (option.letter != 0) {
            const std::string_view plus = option.takes_value() ? "+" : "";
            specs += fmt::format("        '-{}{}[{}]{}' \\\n", option.letter, plus, option.help, action);
        }
    }
    return fmt::format(R"(#compdef ddprun
# Completion of ddprun for zsh: source <(ddprun --print-completion zsh), or a file _ddprun in a folder of $fpath.
_ddprun() {{
    local check=${{words[(i)check]}}
    local -a json
    if (( check < CURRENT )); then
        words[check]=()
        (( CURRENT-- ))
        json=('--json=[write everything as JSON]:FILE:_files')
    fi
    _arguments -S -A '-*' $json \
{}        '1:program:_files' \
        '*:argument:_files'
}}
if [[ "${{funcstack[1]:-}}" == _ddprun ]]; then
    _ddprun "$@"
elif (( $+functions[compdef] )); then
    compdef _ddprun ddprun
fi
)",
                       specs);
}

std::string fish_script(const std::vector<Completed>& options) {
    std::string lines;
    for (const Completed& option : options) {
        lines += fmt::format("complete -c ddprun -n __ddprun_reads_options -l {}", option.name);
        if (option.letter != 0) lines += fmt::format(" -s {}", option.letter);
        if (option.takes_folder())
            lines += " -x -a '(__fish_complete_directories)'";
        else if (!option.words.empty())
            lines += fmt::format(" -x -a '{}'", fmt::join(option.words, " "));
        else if (option.takes_file())
            lines += " -r -F";
        else if (option.takes_value())
            lines += " -x";
        lines += fmt::format(" -d '{}'\n", option.help);
    }
    return fmt::format(R"(# Completion of ddprun for fish: ddprun --print-completion fish | source
function __ddprun_reads_options
    set -l is_value 0
    set -l is_check 0
    for word in (commandline -opc)[2..-1]
        if test $is_value = 1
            set is_value 0
            continue
        end
        switch (string replace --all _ - -- $word)
            case --
                return 1
            case {}
                set is_value 1
            case --json
                set is_value $is_check
            case '-*'
            case check
                test $is_check = 0; or return 1
                set is_check 1
            case '*'
                return 1
        end
    end
    return 0
end
function __ddprun_checks
    contains -- check (commandline -opc); and __ddprun_reads_options
end
complete -c ddprun -n __ddprun_checks -l json -r -F -d 'write everything as JSON'
{})",
                       typed(options, " ", has_value), lines);
}

std::string tcsh_script(const std::vector<Completed>& options) {
    std::vector<std::string> names;
    std::string values;
    for (const Completed& option : options) {
        names.push_back(option.name);
        if (option.takes_folder()) values += fmt::format(" 'n/--{}/d/'", option.name);
        if (!option.words.empty()) values += fmt::format(" 'n/--{}/({})/'", option.name, fmt::join(option.words, " "));
    }
    return fmt::format(
        "# Completion of ddprun for tcsh: ddprun --print-completion tcsh > FILE; source FILE\n"
        "complete ddprun 'c/--/({} json)/'{} 'p/*/f/'\n",
        fmt::join(names, " "), values);
}

}  // namespace

Result<std::string> completion_script(std::string_view shell) {
    const std::vector<Completed> options = completed_options();
    if (shell == "bash") return bash_script(options);
    if (shell == "zsh") return zsh_script(options);
    if (shell == "fish") return fish_script(options);
    if (shell == "tcsh") return tcsh_script(options);
    return Error{Errc::kUsage, fmt::format("--print-completion {}: no such shell here. Write {}.", shell, kShells)};
}

}  // namespace ddprun::launcher
