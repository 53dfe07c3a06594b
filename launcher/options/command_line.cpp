#include "launcher/options/command_line.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <iterator>

#include "common/text/words.hpp"
#include "launcher/options/completion.hpp"
#include "launcher/options/option_table.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::string_view kExamples = R"(Examples:
  ddprun --nproc-per-node 4 train --steps 200        one node, four workers
  ddprun --nnodes 2 --nproc-per-node 4 --local-nodes train
                                                     two nodes emulated on this machine
  ddprun --nnodes 2 --nproc-per-node 4 train         the same line in two terminals of one machine: a two-node job
  ddprun --nnodes 2:4 --nproc-per-node gpu --rdzv-endpoint n1:29400 --max-restarts 3 train.py
                                                     the same line on every node; n1 hosts the rendezvous daemon

Every option may be spelled with dashes or underscores (--rdzv-id, --rdzv_id), and PET_<NAME> (PET_RDZV_ID) sets its
default. A program is a path or a name on PATH; *.py runs under python3 -u. What follows it is passed on untouched.)";

constexpr int kNameColumns = 34;  // of --help: the option, then what it does
constexpr std::size_t kHelpColumns = 120 - kNameColumns;

class HelpFormatter : public CLI::Formatter {
public:
    HelpFormatter() { column_width(kNameColumns); }
    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: ddprun [options] program [arguments]\n\n";
    }
    std::string make_group(std::string group, bool positional, std::vector<const CLI::Option*> options) const override {
        return CLI::Formatter::make_group(std::move(group), positional, std::move(options))
            .substr(1);  // one empty line is enough
    }
};

/// Returns `text` in lines of at most `columns` bytes, broken at blanks.
std::string wrap(std::string_view text, std::size_t columns) {
    std::string lines;
    while (text.size() > columns) {
        const auto blank = text.rfind(' ', columns);
        if (blank == std::string_view::npos) break;
        lines.append(text.substr(0, blank)).push_back('\n');
        text.remove_prefix(blank + 1);
    }
    return lines.append(text);
}

/// The arguments split at the program's name, options reduced to one spelling: "--rdzv-id", "x".
struct Split {
    std::vector<std::string> options;
    std::vector<std::string> program;
};

/// An option of another launcher under a name that ddprun does not know.
struct Elsewhere {
    std::string_view name;
    std::string_view what;  ///< its meaning there, and what to do here
};

constexpr std::string_view kProcesses =
    "mpirun's and srun's number of processes. Use --nproc-per-node N, the workers of each node, and --nnodes.";
constexpr std::string_view kHosts =
    "mpirun's list of hosts. Start the same line on every node, by srun or ssh: with --nnodes N and --rdzv-endpoint "
    "HOST:PORT they meet.";
constexpr std::string_view kBinding =
    "mpirun's binding of processes to cores. Use --numa-binding, and --dry-run to see the result.";
constexpr std::string_view kNotNeeded = "mpirun's, for what ddprun does not need. Leave it out.";

constexpr std::array kElsewhere{
    Elsewhere{"use-env", "torch.distributed.launch's. Leave it out: workers always have LOCAL_RANK."},
    Elsewhere{"np", kProcesses},
    Elsewhere{"n", kProcesses},
    Elsewhere{"ppn", kProcesses},
    Elsewhere{"H", kHosts},
    Elsewhere{"host", kHosts},
    Elsewhere{"hosts", kHosts},
    Elsewhere{"hostfile", kHosts},
    Elsewhere{"machinefile", kHosts},
    Elsewhere{"x",
              "mpirun's variables for the workers. They have the whole environment of ddprun: set the variable before "
              "its name."},
    Elsewhere{"wdir", "mpirun's directory of the workers. They start in that of ddprun: cd there before."},
    Elsewhere{"bind-to", kBinding},
    Elsewhere{"map-by", kBinding},
    Elsewhere{"report-bindings", kBinding},
    Elsewhere{"mca", kNotNeeded},
    Elsewhere{"oversubscribe", kNotNeeded},
    Elsewhere{"allow-run-as-root", kNotNeeded},
    Elsewhere{"tag-output", "mpirun's. Use --label, which starts each line with the worker that printed it."},
};

/// Finds `name` with any number of dashes, because mpirun takes one or two. "-n4" is "-n 4".
const Elsewhere* find_elsewhere(std::string_view name) {
    name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
    name = name.substr(0, name.find('='));
    if (name.starts_with('n') && name.find_first_not_of("0123456789", 1) == std::string_view::npos) name = "n";
    const auto* const found = std::ranges::find(kElsewhere, name, &Elsewhere::name);
    return found != kElsewhere.end() ? found : nullptr;
}

Error unknown_option(std::string_view typed, std::string_view name) {
    if (const Elsewhere* other = find_elsewhere(name))
        return {Errc::kUsage, fmt::format("{} is not an option of ddprun, but {}", typed, other->what)};
    std::vector<std::string> spelled;
    for (const OptionRow& row : option_table()) {
        if (!row.group.empty()) spelled.push_back(fmt::format("--{}", row.name));
    }
    spelled.insert(spelled.end(), {"--help", "--version", "--print-completion"});
    return {Errc::kUsage,
            fmt::format("{}: no such option.{} 'ddprun --help' lists all; options of the program go after its name.",
                        typed, did_you_mean(name, spelled))};
}

/// Splitter: reads options one by one, up to the program's name. Used by read_command_line().
class Splitter {
public:
    explicit Splitter(const std::vector<std::string>& arguments) : next_(arguments.begin()), end_(arguments.end()) {}

    Result<Split> run() {
        while (next_ != end_) {
            const std::string& word = *next_;
            if (word == "--") {
                ++next_;
                break;
            }
            if (word.size() < 2 || word[0] != '-') break;  // "-" is a program's name
            ++next_;
            const Result<void> taken = word[1] == '-' ? take_long(word) : take_short(word);
            if (!taken) return taken.error();
        }
        split_.program.assign(next_, end_);
        return std::move(split_);
    }

private:
    Result<void> take_long(const std::string& word) {
        const auto equals = word.find('=');
        std::string name = word.substr(0, equals);
        std::ranges::replace(name, '_', '-');
        std::optional<std::string> value;
        if (equals != std::string::npos) value = word.substr(equals + 1);
        if (name == "--help" || name == "--version") return take(name, true, "", std::move(value));
        if (name == "--print-completion") return take(name, false, kShells, std::move(value));
        for (const OptionRow& row : option_table()) {
            if (name == fmt::format("--{}", row.name)) return take(name, row.is_flag(), row.value, std::move(value));
        }
        return unknown_option(word.substr(0, equals), name);
    }

    Result<void> take_short(const std::string& word) {
        // "-r3" is "-r 3"; flags are not bundled.
        std::optional<std::string> value;
        if (word.size() > 2) value = word.substr(2);
        if (value && find_elsewhere(word) != nullptr) return unknown_option(word, word);
        if (word[1] == 'h' && !value) return take("--help", true, "", {});
        for (const OptionRow& row : option_table()) {
            if (row.letter != word[1]) continue;
            if (row.is_flag() && value) break;  // a long name with one dash
            return take(fmt::format("--{}", row.name), row.is_flag(), row.value, std::move(value));
        }
        return unknown_option(word, "-" + word);
    }

    Result<void> take(std::string name, bool flag, std::string_view form, std::optional<std::string> value) {
        if (flag && value)
            return Error{Errc::kUsage, fmt::format("{} {}: takes no value; it is there or not.", name, *value)};
        if (!flag && !value) {
            if (next_ == end_)
                return Error{Errc::kUsage, fmt::format("{}: a value is missing. Write {} {}.", name, name, form)};
            value = *next_++;
        }
        split_.options.push_back(std::move(name));
        if (value) split_.options.push_back(std::move(*value));
        return {};
    }

    std::vector<std::string>::const_iterator next_;
    std::vector<std::string>::const_iterator end_;
    Split split_;
};

void add_row(CLI::App& app, const OptionRow& row) {
    std::string names = fmt::format("--{}", row.name);
    if (row.letter != 0) names = fmt::format("-{},{}", row.letter, names);
    CLI::Option* option = nullptr;
    const std::string help = wrap(row.help, kHelpColumns);
    if (row.is_flag()) {
        option = app.add_flag(names, help);
    } else {
        option = app.add_option(
                        names, [](const CLI::results_t&) { return true; }, help)
                     ->type_name(std::string(row.value));
    }
    option->group(std::string(row.group))->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace

Result<CommandLine> read_command_line(const std::vector<std::string>& arguments) {
    auto split = Splitter(arguments).run();
    if (!split) return split.error();

    CLI::App app("Starts, watches and restarts the workers of a data-parallel job on one or many nodes.\n", "ddprun");
    app.formatter(std::make_shared<HelpFormatter>());
    app.footer(std::string(kExamples));
    for (const OptionRow& row : option_table()) add_row(app, row);
    app.set_help_flag("-h,--help", "print this text")->group("About");
    app.set_version_flag("--version", "ddprun " DDPRUN_VERSION, "print the version")->group("About");

    std::string shell;
    app.add_option("--print-completion", shell, "print a script with which that shell completes options of ddprun")
        ->type_name(std::string(kShells))
        ->group("About")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);

    CommandLine line;
    line.program = std::move(split->program);
    try {
        std::vector<std::string> backwards(split->options.rbegin(), split->options.rend());  // as CLI11 wants it
        app.parse(std::move(backwards));
    } catch (const CLI::CallForHelp&) {
        line.print = app.help();
    } catch (const CLI::CallForVersion&) {
        line.print = app.version() + "\n";
    } catch (const CLI::ParseError& error) {
        return Error{Errc::kUsage, error.what()};  // not reachable: the splitter has refused these already
    }
    if (line.print.empty() && app.count("--print-completion") > 0) {
        auto script = completion_script(shell);
        if (!script) return script.error();
        line.print = std::move(*script);
    }
    for (const OptionRow& row : option_table()) {
        const CLI::Option* option = app.get_option(fmt::format("--{}", row.name));
        if (option->count() > 0) line.given.emplace(row.name, row.is_flag() ? "1" : option->results().back());
    }
    return line;
}

}  // namespace ddprun::launcher
