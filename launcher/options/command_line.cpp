#include "launcher/options/command_line.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <iterator>

#include "common/job_limits.hpp"
#include "common/text/list.hpp"
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
  ddprun --nproc-per-node 2 trainer : --nproc-per-node 1 --max-restarts 3 server
                                                     two programs in one job; server's role is "server"
  ddprun check --nnodes 2 --rdzv-endpoint n1:29400   no program: compare the nodes, and name the odd one

Every option may be spelled with dashes or underscores (--rdzv-id, --rdzv_id), and PET_<NAME> (PET_RDZV_ID) sets its
default. A program is a path or a name on PATH; *.py runs under python3 -u. What follows it is passed on untouched. A
':' directly before --nproc-per-node begins another program of the same job.)";

constexpr std::string_view kCheckHelp = R"(Usage: ddprun check [--json FILE] [options of a job]

Compares the nodes of a job before it starts, and names the odd one: GPUs, versions, interfaces, limits, clocks, the
bandwidth between nodes, and an all-reduce whose sums are known. The options are those of `ddprun`, the same as for the
job, on every node: --nnodes, --rdzv-endpoint, --nproc-per-node, ...

  --json FILE    write the facts and the findings there as JSON; '-' is stdout, without the table

It ends with 0 if nothing was found, and with 93 if something was. A program named check is started as ./check.
)";

constexpr int kNameColumns = 34;  // of --help: the option, then what it does
constexpr std::size_t kHelpColumns = 120 - kNameColumns;

class HelpFormatter : public CLI::Formatter {
public:
    HelpFormatter() { column_width(kNameColumns); }
    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: ddprun [options] program [arguments] [: --nproc-per-node N [options] program "
               "[arguments]]...\n       ddprun check [--json FILE] [options]\n\n";
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

/// An option of another launcher under a name that ddprun does not know.
struct Elsewhere {
    std::string_view name;
    std::string_view what;  ///< its meaning there, and what to do here
};

constexpr std::string_view kProcesses =
    "mpirun's and srun's number of processes. Use --nproc-per-node N, the workers of each node, and --nnodes.";
constexpr std::string_view kHosts = "mpirun's list of hosts. Use --hosts, with n1,n2 or the name of a file.";
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

constexpr std::array kPrinting{std::string_view("help"), std::string_view("version")};
constexpr std::string_view kCompletion = "print-completion";

// `ddprun check` takes the options of a job on both sides of its name, and one of its own. Its program is ddp-check.
constexpr std::string_view kCheck = "check";
constexpr std::string_view kCheckProgram = "ddp-check";
constexpr std::string_view kCheckJson = "json";

/// Splitter: reads the options before one program one by one, up to the program's name. Used by read_command_line().
class Splitter {
public:
    using Word = std::vector<std::string>::const_iterator;

    /// may_check: whether `check` is more than the name of a program.
    Splitter(Word begin, Word end, bool may_check) : next_(begin), end_(end), may_check_(may_check) {}

    Result<ProgramLine> run() {
        while (next_ != end_) {
            const std::string& word = *next_;
            if (word == "--") {
                ++next_;
                break;
            }
            if (begins_check(word)) {
                line_.check = true;
                ++next_;
                continue;
            }
            if (word.size() < 2 || word[0] != '-') break;  // "-" is a program's name
            ++next_;
            const Result<void> taken = word[1] == '-' ? take_long(word) : take_short(word);
            if (!taken) return taken.error();
        }
        line_.command.assign(next_, end_);
        if (!line_.check) return std::move(line_);
        if (next_ != end_) {
            return Error{Errc::kUsage,
                         fmt::format("check: unexpected argument '{0}'. It takes options alone, and runs no program; a "
                                     "program of that name is started as ./check or after --.",
                                     *next_)};
        }
        return check_line();
    }

private:
    [[nodiscard]] bool begins_check(const std::string& word) const {
        constexpr std::array<std::string_view, 3> kKinds{"module", "run-path", "no-python"};
        return may_check_ && !line_.check && word == kCheck &&
               std::ranges::none_of(kKinds, [&](std::string_view kind) { return line_.given.contains(kind); });
    }

    /// Returns the line that runs ddp-check with its own option.
    ProgramLine check_line() {
        line_.command = {std::string(kCheckProgram)};
        if (const auto json = line_.given.find(kCheckJson); json != line_.given.end()) {
            line_.command.push_back(fmt::format("--{}", kCheckJson));
            line_.command.push_back(json->second);
            line_.given.erase(json);
        }
        return std::move(line_);
    }

    Result<void> take_long(const std::string& word) {
        const auto equals = word.find('=');
        std::string name = word.substr(0, equals);
        std::ranges::replace(name, '_', '-');
        std::optional<std::string> value;
        if (equals != std::string::npos) value = word.substr(equals + 1);
        const std::string_view row_name = std::string_view(name).substr(2);
        if (std::ranges::count(kPrinting, row_name) > 0) return take(row_name, true, "", std::move(value));
        if (line_.check && row_name == kCheckJson) return take(row_name, false, "FILE", std::move(value));
        if (row_name == kCompletion) return take(row_name, false, kShells, std::move(value));
        for (const OptionRow& row : option_table()) {
            if (row_name == row.name) return take(row.name, row.is_flag(), row.value, std::move(value));
        }
        return unknown_option(word.substr(0, equals), name);
    }

    Result<void> take_short(const std::string& word) {
        // "-r3" is "-r 3"; flags are not bundled.
        std::optional<std::string> value;
        if (word.size() > 2) value = word.substr(2);
        if (value && find_elsewhere(word) != nullptr) return unknown_option(word, word);
        if (word[1] == 'h' && !value) return take("help", true, "", {});
        for (const OptionRow& row : option_table()) {
            if (row.letter != word[1]) continue;
            if (row.is_flag() && value) break;  // a long name with one dash
            return take(row.name, row.is_flag(), row.value, std::move(value));
        }
        return unknown_option(word, "-" + word);
    }

    Result<void> take(std::string_view name, bool flag, std::string_view form, std::optional<std::string> value) {
        if (flag && value)
            return Error{Errc::kUsage, fmt::format("--{} {}: takes no value; it is there or not.", name, *value)};
        if (!flag && !value) {
            if (next_ == end_)
                return Error{Errc::kUsage, fmt::format("--{0}: a value is missing. Write --{0} {1}.", name, form)};
            value = *next_++;
        }
        line_.given.insert_or_assign(std::string(name), value.value_or("1"));
        return {};
    }

    Word next_;
    Word end_;
    bool may_check_;
    ProgramLine line_;
};

/// Returns where the next further program begins: at a ':' directly before --nproc-per-node.
Splitter::Word next_separator(Splitter::Word begin, Splitter::Word end) {
    return std::adjacent_find(begin, end, [](const std::string& word, std::string after) {
        std::ranges::replace(after, '_', '-');
        return word == ":" && after.substr(0, after.find('=')) == "--nproc-per-node";
    });
}

/// Reads the options of a further program; refuses those of the job.
Result<ProgramLine> read_further(Splitter::Word begin, Splitter::Word end) {
    auto line = Splitter(begin, end, false).run();
    if (!line) return line;
    std::vector<std::string> allowed;
    for (const OptionRow& row : option_table())
        if (row.of_program) allowed.push_back(fmt::format("--{}", row.name));
    for (const auto& [name, text] : line->given) {
        if (std::ranges::count(allowed, "--" + name) > 0) continue;
        return Error{Errc::kUsage, fmt::format("--{}: is for the whole job, so it goes before the first program. The "
                                               "options of a program after ':' are {}.",
                                               name, list_of(allowed))};
    }
    return line;
}

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
    option->group(std::string(row.group));
}

std::string help_text() {
    CLI::App app("Starts, watches and restarts the workers of a data-parallel job on one or many nodes.\n", "ddprun");
    app.formatter(std::make_shared<HelpFormatter>());
    app.footer(std::string(kExamples));
    for (const OptionRow& row : option_table()) add_row(app, row);
    app.set_help_flag("-h,--help", "print all options")->group("About");
    app.set_version_flag("--version", "ddprun " DDPRUN_VERSION, "print the version")->group("About");
    std::string shell;
    app.add_option("--print-completion", shell, "print a script with which that shell completes options of ddprun")
        ->type_name(std::string(kShells))
        ->group("About");
    return app.help();
}

/// Returns the text of --help, --version or --print-completion, whichever is given; empty: none is.
Result<std::string> text_to_print(const ProgramLine& line) {
    if (line.given.contains("help")) return line.check ? std::string(kCheckHelp) : help_text();
    if (line.given.contains("version")) return std::string("ddprun " DDPRUN_VERSION "\n");
    const auto shell = line.given.find(kCompletion);
    return shell != line.given.end() ? completion_script(shell->second) : std::string();
}

}  // namespace

Result<ProgramLine> read_first_options(const std::vector<std::string>& arguments) {
    return Splitter(arguments.begin(), arguments.end(), true).run();
}

Result<CommandLine> read_command_line(const std::vector<std::string>& arguments) {
    CommandLine line;
    auto begin = arguments.begin();
    const auto end = arguments.end();
    for (bool more = true; more;) {
        const std::size_t index = line.programs.size();
        if (index == kMaxPrograms) {
            return Error{Errc::kUsage, fmt::format("a node runs at most {} programs. Start fewer, or start the others "
                                                   "on more nodes (--nnodes).",
                                                   kMaxPrograms)};
        }
        auto program = index == 0 ? Splitter(begin, end, true).run() : read_further(begin, end);
        if (!program && index == 0) return program.error();
        if (!program) return with_context(fmt::format("program {}", index + 1), program.error());
        if (program->check) {  // takes all words, so that no other program follows
            line.programs.push_back(std::move(*program));
            break;
        }
        const auto rest = end - std::ssize(program->command);
        const auto separator = next_separator(rest, end);
        program->command.resize(static_cast<std::size_t>(separator - rest));
        line.programs.push_back(std::move(*program));
        more = separator != end;
        if (more) begin = separator + 1;
    }
    auto print = text_to_print(line.programs.front());
    if (!print) return print.error();
    line.print = std::move(*print);
    return line;
}

}  // namespace ddprun::launcher
