#include "agent/verdict_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>

#include "common/exit_codes.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/utf8.hpp"
#include "common/text/words.hpp"
#include "rendezvous/protocol/flight_record.hpp"

namespace ddprun::agent {
namespace {

using protocol::FailureReport;
using protocol::OomKill;
using protocol::Outcome;
using protocol::Verdict;

constexpr int kWidth = 78;
constexpr std::string_view kCheck = "ddp-check";  // the program of `ddprun check`

std::string rule(char c) { return std::string(kWidth, c) + "\n"; }

std::string field(std::string_view name, std::string_view value) { return fmt::format("  {:<12}: {}\n", name, value); }

/// Returns `text` with a bar in front of every line, so that it cannot be mistaken for a line of ddprun.
std::string barred(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        result += fmt::format("    | {}\n", text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return result;
}

std::string_view advice_for_kill(OomKill oom) {
    switch (oom) {
        case OomKill::kYes:
            return "Memory ran out there: `dmesg | grep -i oom` on that host shows how much each process used. Give "
                   "the job more memory, or each worker less data at a time.";
        case OomKill::kNo:
            return "A user, a scheduler, the program itself or its limit of CPU time (`ulimit -Ht`) sent the signal, "
                   "not ddprun and not the kernel's out-of-memory killer. See the scheduler's log.";
        case OomKill::kMaybe:
        case OomKill::kUnknown: break;
    }
    return "Unless a user or a scheduler sent the signal, memory ran out and the kernel sent it: see "
           "`dmesg | grep -i oom` on that host, and the memory limit of the job.";
}

/// Returns whether a line of the worker's stderr has the text.
bool shows(const FailureReport& culprit, std::string_view text) {
    return std::ranges::any_of(culprit.last_lines, [&](std::string_view line) { return line.find(text) != line.npos; });
}

/// Returns whether glibc has found its heap damaged.
bool shows_damaged_heap(const FailureReport& culprit) {
    constexpr std::array<std::string_view, 6> kTexts{
        "free(): ", "malloc(): ", "malloc_consolidate(): ", "realloc(): ", "corrupted ", "munmap_chunk(): "};
    return std::ranges::any_of(kTexts, [&](std::string_view text) { return shows(culprit, text); });
}

/// Returns whether Python's faulthandler has printed the stacks of the threads.
bool shows_python_stacks(const FailureReport& culprit) {
    return std::ranges::any_of(culprit.last_lines, [](std::string_view line) {
        return line.starts_with("Fatal Python error: ") || line.ends_with(" (most recent call first):");
    });
}

std::string_view advice_for_signal_alone(const FailureReport& culprit) {
    switch (culprit.status.number) {
        case SIGSEGV:
        case SIGBUS:
        case SIGILL:
        case SIGFPE:
            if (shows_python_stacks(culprit))
                return "The program crashed. Look for a core file (`coredumpctl`, `ulimit -c unlimited`).";
            return "The program crashed. Look for a core file (`coredumpctl`, `ulimit -c unlimited`); for Python set "
                   "PYTHONFAULTHANDLER=1.";
        case SIGABRT: return "The program aborted (a failed assertion or an uncaught exception): see its stderr.";
        case SIGTERM:
        case SIGINT: return "A user, a scheduler or the program itself sent the signal, not ddprun.";
        case SIGXCPU:
            return "The kernel sent the signal: the program has used up its CPU time. Raise the limit (`ulimit -t`) "
                   "before ddprun starts.";
        case SIGXFSZ:
            return "The kernel sent the signal: the program wrote a file larger than its limit. Raise it (`ulimit -f`) "
                   "before ddprun starts.";
        default: return "";
    }
}

/// Adds the commonest fault in the use of the worker library, where it may be the cause: a buffer that dies too early.
std::string advice_for_signal(const FailureReport& culprit) {
    std::string text(advice_for_signal_alone(culprit));
    const int signal = culprit.status.number;
    const bool bad_memory = signal == SIGSEGV || signal == SIGBUS || (signal == SIGABRT && shows_damaged_heap(culprit));
    if (bad_memory && protocol::has_operation_under_way(culprit.activity))
        text += " An operation was under way: its buffers must stay in place until its Work has ended.";
    return text;
}

/// Returns whether the worker library has ended its process because the GPU did not answer. Other programs use the
/// code, too.
bool ended_by_gpu(const FailureReport& culprit) {
    return culprit.status == ExitStatus{ExitStatus::Kind::kExited, exit_code::kDeviceStuck} &&
           shows(culprit, " does not answer, and this process ends with code ");
}

/// Returns whether env(1) has not found the interpreter of a script: "/usr/bin/env: 'python': No such file or
/// directory".
bool names_missing_python(const FailureReport& culprit) {
    return std::ranges::any_of(culprit.last_lines, [](std::string_view line) {
        return line.find("env: ") != line.npos && line.find("python") != line.npos && line.find("No such") != line.npos;
    });
}

std::string advice_for_end(const Verdict& verdict) {
    // The coordinator knows which remedy there is, and names it in the reason or as the hint.
    if (verdict.outcome == Outcome::kInfrastructure || !verdict.culprit) return "";
    if (verdict.culprit->pid == 0) return "";  // its message says what to do about the program
    const ExitStatus& status = verdict.culprit->status;
    if (verdict.culprit->oom == OomKill::kYes) return std::string(advice_for_kill(OomKill::kYes));
    if (status.kind == ExitStatus::Kind::kSignaled) {
        return status.number == SIGKILL ? std::string(advice_for_kill(verdict.culprit->oom))
                                        : advice_for_signal(*verdict.culprit);
    }
    if (ended_by_gpu(*verdict.culprit)) {
        return "The GPU, its driver or NCCL did not answer. Look at nvidia-smi and dmesg on that host; if it happens "
               "again, run without that GPU (CUDA_VISIBLE_DEVICES) or without the host.";
    }
    if (status.number == exit_code::kProgramNotFound && names_missing_python(*verdict.culprit)) {
        return "The first line of the script names a Python that does not exist: pass --run-path, and ddprun "
               "chooses the interpreter.";
    }
    if (status.number == exit_code::kProgramNotFound &&
        shows(*verdict.culprit, "error while loading shared libraries: ")) {
        return "The program is there, but not a library that it needs: install that on the host too, or name its "
               "folder in LD_LIBRARY_PATH.";
    }
    if (status.number == exit_code::kProgramNotFound)
        return "Check the program's name, and that it is installed on that host too.";
    if (status.number == exit_code::kCannotExecute)
        return "Check that it is a program for this machine and executable (chmod +x).";
    if (verdict.culprit->last_lines.empty() && verdict.culprit->message.empty()) {
        return verdict.culprit->log_file.empty()
                   ? "It wrote nothing to stderr. --log-dir keeps the output of every rank."
                   : "It wrote nothing to stderr; its stdout is in the .out file beside the log file.";
    }
    return "";
}

/// Returns the module that Python did not find, from "ModuleNotFoundError: No module named 'torch'" or, for python -m,
/// "python3: No module named torch"; empty: the line reports something else.
std::string missing_module(std::string_view line) {
    constexpr std::string_view kText = "No module named ";
    const auto at = line.find(kText);
    if (at == std::string_view::npos) return "";
    std::string_view name = line.substr(at + kText.size());
    if (name.starts_with('\'')) name.remove_prefix(1);
    return std::string(name.substr(0, name.find_first_of("'; \r\n")));
}

/// Returns which interpreter has not found a module, and how to choose another; empty: no module was missing.
std::string advice_for_module(const FailureReport& culprit, const JobName& job) {
    if (job.interpreter.empty()) return "";
    std::string module = missing_module(culprit.message);
    for (const std::string& line : culprit.last_lines) {
        if (std::string found = missing_module(line); !found.empty()) module = std::move(found);
    }
    if (module.empty()) return "";
    return fmt::format(
        "No module '{}': on this node the program runs under {}. Install it there, or activate the environment "
        "that has it before ddprun starts, or set PYTHON_EXEC to another Python.",
        module, job.interpreter);
}

/// Returns whether the line reports wrong arguments of a program: the first line of a usage text (argparse and others),
/// a reference to the help at the line's end (GNU), or getopt's message. Other lines only mention such words.
bool is_usage_error(std::string line) {
    line = lower_case(std::move(line));
    const auto begin = line.find_first_not_of(" \t");
    if (begin != line.npos && std::string_view(line).substr(begin).starts_with("usage:")) return true;
    if (line.find(": unrecognized option '") != line.npos || line.find(": invalid option -- ") != line.npos)
        return true;
    const bool points = line.find("try ") != line.npos || line.find("see ") != line.npos;
    constexpr std::array<std::string_view, 4> kEnds{"--help", "--help.", "--help'.", "--help' for more information."};
    return points && std::ranges::any_of(kEnds, [&](std::string_view end) { return line.ends_with(end); });
}

/// Returns whether the worker ended with the code for wrong usage and such a line. Then the user needs that line first.
bool rejected_its_arguments(const FailureReport& culprit) {
    const ExitStatus& status = culprit.status;
    if (culprit.pid == 0 || !culprit.activity.empty() || !culprit.message.empty()) return false;
    if (status.kind != ExitStatus::Kind::kExited || status.number != exit_code::kUsage) return false;
    return std::ranges::any_of(culprit.last_lines, is_usage_error);
}

/// Returns the lines behind bars; a line that occurs several times in a row appears once, with its count.
std::string barred_lines(const std::vector<std::string>& lines) {
    std::string text;
    for (std::size_t i = 0, end = 0; i < lines.size(); i = end) {
        end = i + 1;
        while (end < lines.size() && lines[end] == lines[i]) ++end;
        if (lines[i].empty())
            text += "    |\n";
        else
            text += barred(end - i > 1 ? fmt::format("{}  (x{})", lines[i], end - i) : lines[i]);
    }
    return text;
}

/// Describes a program that rejected its arguments. Rank and host are shown too, in short: an argument may differ from
/// host to host, and the usage text may be that of a tool which the program has called.
std::string describe_usage_error(const FailureReport& culprit, CulpritStderr shown) {
    std::string text = shown == CulpritStderr::kQuoted ? barred_lines(culprit.last_lines) : "";
    text += "Put arguments of the program behind its name, and options of ddprun before it.\n";
    text +=
        field("rank", fmt::format("{} (local rank {}) on {} (node rank {}), process {}", number(culprit.rank),
                                  number(culprit.local_rank), culprit.host, number(culprit.node_rank), culprit.pid));
    if (!culprit.log_file.empty()) text += field("log file", culprit.log_file);
    return text;
}

/// Returns whether the line is empty, or a rule as those of a box.
bool is_rule(const std::string& line) { return line.find_first_not_of(" =-") == std::string::npos; }

std::string describe_stderr(const std::vector<std::string>& lines, CulpritStderr shown) {
    if (lines.empty()) return "";
    if (shown == CulpritStderr::kQuoted) return field("stderr", "its last lines") + barred_lines(lines);
    const auto last = std::find_if_not(lines.rbegin(), lines.rend(), is_rule);
    if (shown == CulpritStderr::kShownAbove || last == lines.rend()) return field("stderr", "printed above");
    return field("stderr", "printed above; its last line:") + barred(*last);
}

/// Describes the culprit; leaves out what the reason or the diagnosis contains already.
std::string describe(const FailureReport& culprit, const Verdict& verdict, CulpritStderr shown) {
    if (rejected_its_arguments(culprit)) return describe_usage_error(culprit, shown);
    std::string text = culprit.pid > 0 ? "First failure:\n" : "";
    if (verdict.first_victim) text = "First victim:\n";
    text += field("rank", fmt::format("{} (local rank {})", number(culprit.rank), number(culprit.local_rank)));
    if (!culprit.role.empty()) text += field("role", culprit.role);
    text += field("host", fmt::format("{} (node rank {})", culprit.host, number(culprit.node_rank)));
    text += culprit.pid > 0 ? field("what", fmt::format("process {} {}", culprit.pid, describe_end(culprit)))
                            : field("what", "it could not be started and has not run");
    if (!culprit.activity.empty() && !verdict.names_activity) text += field("at its end", culprit.activity);
    if (!culprit.message.empty() && !verdict.names_message) text += field("message", "") + barred(culprit.message);
    text += describe_stderr(culprit.last_lines, shown);
    if (!culprit.log_file.empty()) text += field("log file", culprit.log_file);
    return text;
}

/// Describes the ranks that failed by themselves beside the culprit.
std::string describe_others(const std::vector<protocol::FailedRanks>& also_failed) {
    std::string others;
    std::string victims;
    for (const protocol::FailedRanks& failed : also_failed) {
        std::vector<int> ranks;
        for (const protocol::RankRun& run : failed.ranks)
            for (int rank = run.first; rank < run.first + run.count; ++rank) ranks.push_back(rank);
        FailureReport one;
        one.status = failed.status;
        one.oom = failed.oom;
        const std::string_view was = inflect(ranks.size(), "was ", "were ");
        const bool signaled = failed.status.kind == ExitStatus::Kind::kSignaled;
        (failed.victims ? victims : others) +=
            field(failed.victims ? "victims" : "also failed",
                  fmt::format("{} {}{}", name_rank_ranges(ranks), signaled ? was : "", end_participle(one)));
    }
    return others + victims;
}

}  // namespace

bool needs_box(const Verdict& verdict, const JobName& job) {
    switch (verdict.outcome) {
        case Outcome::kSucceeded:
        case Outcome::kStopped: return false;
        case Outcome::kPreempted: return !verdict.diagnosis.empty();
        case Outcome::kWorkerFailed: return job.program != kCheck || verdict.exit_code != exit_code::kDoNotRequeue;
        case Outcome::kInfrastructure: return true;
    }
    return true;
}

std::string advice(const Verdict& verdict, const JobName& job) {
    if (!needs_box(verdict, job)) return "";
    if (verdict.outcome == Outcome::kPreempted) return "Start the job again: it resumes from its newest checkpoint.";
    // The cause is certain then, whatever the diagnosis is.
    const bool certain = verdict.culprit && (verdict.culprit->oom == OomKill::kYes || ended_by_gpu(*verdict.culprit));
    if (!verdict.hint.empty() && !certain) return verdict.hint + ".";
    if (verdict.culprit && verdict.outcome == Outcome::kWorkerFailed) {
        if (std::string text = advice_for_module(*verdict.culprit, job); !text.empty()) return text;
    }
    return advice_for_end(verdict);
}

std::string format_verdict(const Verdict& verdict, const JobName& job, CulpritStderr shown) {
    if (!needs_box(verdict, job)) return "";
    std::string text = rule('=');
    const bool named = verdict.culprit && !verdict.culprit->program.empty();  // one of several programs
    const std::string& failed = named ? verdict.culprit->program : job.program;
    if (verdict.outcome == Outcome::kInfrastructure)
        text += fmt::format("INFRASTRUCTURE FAILURE (not a failure of {})\n", job.program);
    else
        text +=
            fmt::format("{} {}\n", failed, verdict.outcome == Outcome::kPreempted ? "DID NOT STOP IN TIME" : "FAILED");
    text += rule('-');
    // The first victim comes after the diagnosis that names the culprit.
    const std::string& first = verdict.first_victim ? verdict.diagnosis : verdict.reason;
    const std::string& second = verdict.first_victim ? verdict.reason : verdict.diagnosis;
    if (!first.empty()) text += first + "\n";
    if (!second.empty()) text += second + "\n";
    if (verdict.culprit) text += describe(*verdict.culprit, verdict, shown);
    text += describe_others(verdict.also_failed);
    if (!job.command.empty()) text += field("command", job.command);
    if (!job.run_id.empty()) text += field("job", job.run_id);
    if (verdict.restarts > 0) text += field("restarts", std::to_string(verdict.restarts));
    text += field("exit code", std::to_string(verdict.exit_code));
    if (const std::string hint = advice(verdict, job); !hint.empty()) text += fmt::format("{}\n", hint);
    text += rule('=');
    return printable(text);  // other nodes have written much of it
}

}  // namespace ddprun::agent
