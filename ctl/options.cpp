#include "ctl/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "common/option_errors.hpp"
#include "common/text/words.hpp"

namespace ddprun::ctl {
namespace {

using protocol::Order;

constexpr std::uint16_t kDefaultPort = 29400;
constexpr double kMinSeconds = 0.1;
constexpr double kMaxSeconds = 3'600;
constexpr double kMaxDeadline = 86'400;

constexpr const char* kFooter =
    "\n"
    "status shows the nodes of a running job, what each of them does, and the newest decisions with their reasons.\n"
    "dump shows what every rank of a running job is doing, and which rank keeps others waiting, without disturbing the "
    "job.\n"
    "With --output it writes DIR/rank_N.json for every rank, in the schema of PyTorch's flight recorder;\n"
    "ddp-fr-trace DIR analyses them with PyTorch.\n"
    "drain takes a node out of the job: its workers are stopped, the job starts again without it, and its ddprun "
    "waits.\n"
    "undrain lets it take part again. NODE is its name in the status. A node that the job needs cannot be drained.\n"
    "preempt gives the workers of all nodes notice of a preemption: they save a checkpoint and exit, and the job ends "
    "with 75.\n"
    "checkpoint lists the tensors of a checkpoint file, and verifies its checksums. It needs no job.\n"
    "\n"
    "Exit codes: 0 shown or done; 1 no rank has a flight record (dump), or a damaged file (checkpoint);\n"
    "2 wrong usage, an order that was refused, no job or several to choose from, or a file that cannot be read;\n"
    "69 the job cannot be reached; 74 a file or stdout could not be written; 70 a bug.";

constexpr std::array<std::string_view, 6> kCommands{"status", "dump", "drain", "undrain", "preempt", "checkpoint"};
constexpr const char* kCommandList = "status, dump, drain, undrain, preempt or checkpoint";

/// Returns the error for an option before the command: ddpctl itself has only --help and --version.
std::string before_the_command(const std::string& word, const std::string& command) {
    return fmt::format("{}: not an option of ddpctl. Write options after the command: ddpctl {}",
                       word.substr(0, word.find('=')), command);
}

std::string check_decisions(const std::string& typed) {
    int count = 0;
    if (CLI::detail::lexical_cast(typed, count) && 0 <= count && count <= static_cast<int>(protocol::kMaxDecisions))
        return {};
    return fmt::format("'{}' is not a whole number from 0 to {}", typed, protocol::kMaxDecisions);
}

std::chrono::milliseconds milliseconds_of(double seconds) {
    return std::chrono::milliseconds(std::llround(seconds * 1000));
}

int refuse_without_argument(const CLI::App& app, const std::string& command) {
    if (command == "checkpoint") return refuse_usage(app, "which file? Write ddpctl checkpoint FILE");
    return refuse_usage(app, fmt::format("which node? Write ddpctl {} NODE", command));
}

/// The values of all options, as they are typed.
struct Typed {
    std::string endpoint;
    double seconds = std::chrono::duration<double>(JobOptions().timeout).count();
    StatusOptions status;
    DumpOptions dump;
    std::string node;
    CheckpointOptions checkpoint;
    bool wait = false;
    double deadline = 0;
    bool insecure = false;
};

/// Adds a command with the options that every command has.
CLI::App* add_command(CLI::App& app, std::string_view name, const char* help, Typed& typed) {
    CLI::App* const command = app.add_subcommand(std::string(name), help);
    command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    command
        ->add_option("--rdzv-endpoint,--rdzv_endpoint", typed.endpoint,
                     "address of the job's rendezvous daemon, as for ddprun; without it, the one job of yours that has "
                     "a node on this machine")
        ->type_name("HOST[:PORT]");
    command->add_option("--timeout", typed.seconds, "how long to try to reach the daemon, and to wait for each answer")
        ->check([](const std::string& text) { return check_seconds(text, kMinSeconds, kMaxSeconds); })
        ->type_name("SECONDS")
        ->capture_default_str();
    command->add_flag("--insecure", typed.insecure, "no TLS: for a job that was started with this option");
    return command;
}

void add_commands(CLI::App& app, Typed& typed) {
    CLI::App* const status = add_command(app, "status", "show the nodes of the job and the newest decisions", typed);
    status->add_flag("--all", typed.status.all, "show all nodes of a large job, also those that need no attention");
    status->add_option("--decisions", typed.status.decisions, "how many decisions to show, 200 at most")
        ->check(check_decisions)
        ->type_name("N")
        ->capture_default_str();
    add_command(app, "dump", "show what every rank is doing", typed)
        ->add_option("-o,--output", typed.dump.output, "also write one JSON file per rank to this folder")
        ->type_name("DIR");
    for (const auto& [name, text] :
         {std::pair("drain", "take a node out of the job"), std::pair("undrain", "let a drained node take part again")})
        add_command(app, name, text, typed)
            ->add_option("NODE", typed.node, "name of the node in the status")
            ->required()
            ->type_name("");
    app.get_subcommand("drain")->add_flag("--wait", typed.wait,
                                          "return when the node has no workers any more, or the job has ended");
    add_command(app, "preempt", "have all workers save a checkpoint and exit", typed)
        ->add_option("--deadline", typed.deadline, "stop workers that have not ended by then (default: never)")
        ->check([](const std::string& text) { return check_seconds(text, kMinSeconds, kMaxDeadline); })
        ->type_name("SECONDS");
    app.add_subcommand("checkpoint", "list the tensors of a checkpoint file, and verify its checksums")
        ->add_option("FILE", typed.checkpoint.path, "a file of ddp::Checkpointer, or any safetensors file")
        ->required()
        ->type_name("");
}

}  // namespace

std::string unknown_command(std::string_view typed) {
    if (typed.empty() || typed.starts_with('-') || std::ranges::count(kCommands, typed) > 0) return "";
    return fmt::format("there is no command '{}'.{}", typed, did_you_mean(typed, kCommands));
}

std::variant<StatusOptions, DumpOptions, OrderOptions, CheckpointOptions, int> parse_options(int argc,
                                                                                             const char* const* argv) {
    Typed typed;
    CLI::App app(
        "ddpctl: looks at a running job of ddprun, drains its nodes, has it stop with a checkpoint, and verifies one.",
        "ddpctl");
    app.footer(kFooter);
    app.set_version_flag("--version", "ddpctl " DDPRUN_VERSION);
    app.require_subcommand(1);
    add_commands(app, typed);
    // For a mistyped command CLI11 would only report that a command is required.
    if (const std::string unknown = unknown_command(argc > 1 ? argv[1] : ""); !unknown.empty())
        return refuse_usage(app, unknown);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help, --version
        return print_requested(app, asked);
    } catch (const CLI::ParseError& error) {
        const std::vector<std::string> before = app.remaining();  // the options before the command
        const auto commands = app.get_subcommands();
        if (!before.empty())
            return refuse_usage(
                app, before_the_command(before.front(), commands.empty() ? "COMMAND" : commands.front()->get_name()));
        if (commands.empty()) return refuse_usage(app, fmt::format("which command? Write ddpctl {}", kCommandList));
        if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
            return refuse_without_argument(app, commands.front()->get_name());
        return refuse_usage(app, text_of(app, error));
    }
    const CLI::App& command = *app.get_subcommands().front();
    const std::string name = command.get_name();
    if (name == "checkpoint") {
        if (typed.checkpoint.path.empty()) return refuse_without_argument(app, name);
        return typed.checkpoint;
    }
    JobOptions job{.typed = name, .timeout = milliseconds_of(typed.seconds), .insecure = typed.insecure};
    if (command.count("--rdzv-endpoint") > 0) {
        const auto parsed = parse_endpoint(typed.endpoint, kDefaultPort);
        if (!parsed)
            return refuse_usage(app, fmt::format("--rdzv-endpoint {}: {}", typed.endpoint, parsed.error().message));
        job.endpoint = *parsed;
    }
    if (name == "status") {
        static_cast<JobOptions&>(typed.status) = std::move(job);
        return typed.status;
    }
    if (name == "dump") {
        if (command.count("--output") > 0 && typed.dump.output.empty())
            return refuse_usage(app, "--output: name a folder");
        static_cast<JobOptions&>(typed.dump) = std::move(job);
        return typed.dump;
    }
    if (name == "preempt") {
        OrderOptions order{job, Order::Command::kPreempt, {}, false};
        if (command.count("--deadline") > 0) order.deadline = milliseconds_of(typed.deadline);
        return order;
    }
    if (typed.node.empty()) return refuse_without_argument(app, name);
    job.typed += " " + typed.node;
    return OrderOptions{job, name == "drain" ? Order::Command::kDrain : Order::Command::kUndrain, typed.node,
                        typed.wait, std::nullopt};
}

}  // namespace ddprun::ctl
