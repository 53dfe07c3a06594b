#include "agent/verdict_text.hpp"

#include <csignal>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace ddprun::protocol;
using Catch::Contains;

namespace {

Verdict failure(ExitStatus status) {
    FailureReport culprit;
    culprit.rank = Rank{5};
    culprit.local_rank = LocalRank{1};
    culprit.node_rank = NodeRank{1};
    culprit.host = "n12";
    culprit.pid = 4242;
    culprit.status = status;
    Verdict verdict;
    verdict.outcome = Outcome::kWorkerFailed;
    verdict.exit_code = status.exit_code();
    verdict.reason = "rank 5 on n12 failed and no restart was left";
    verdict.culprit = culprit;
    verdict.restarts = 2;
    return verdict;
}

}  // namespace

TEST_CASE("a success needs no box", "[agent]") { CHECK(format_verdict(Verdict{}, {"train"}).empty()); }

TEST_CASE("findings of ddprun check need no box, its failure needs one", "[agent]") {
    const Verdict findings = failure({ExitStatus::Kind::kExited, 93, false});
    CHECK_FALSE(needs_box(findings, {"ddp-check"}));
    CHECK(needs_box(findings, {"train"}));
    CHECK(needs_box(failure({ExitStatus::Kind::kExited, 1, false}), {"ddp-check"}));
}

TEST_CASE("a failure names program, rank, host, process, signal, stderr, exit code and what to do", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kSignaled, SIGKILL, false});
    verdict.culprit->last_lines = {"loading", "", "allocating 900 GB"};
    verdict.culprit->message = "MemoryError: too much\nof it";
    const std::string text = format_verdict(verdict, {"train"});
    for (const char* part :
         {"train FAILED", "5 (local rank 1)", "n12 (node rank 1)", "process 4242 was killed by SIGKILL",
          "| allocating 900 GB", "| MemoryError: too much\n    | of it\n", "restarts    : 2", "exit code   : 137",
          "dmesg", "no restart was left"}) {
        CHECK_THAT(text, Contains(part));
    }
    CHECK(text.back() == '\n');
}

TEST_CASE("stderr that the same console has shown is not quoted", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 1, false});
    verdict.culprit->last_lines = {"ValueError: x"};
    verdict.culprit->message = "the message of the error file";
    const std::string text = format_verdict(verdict, {"train"}, CulpritStderr::kShownAbove);
    CHECK_THAT(text, Contains("\n  stderr      : printed above\n") && !Contains("ValueError") &&
                         Contains("    | the message of the error file\n") && !Contains("wrote nothing"));
    verdict.culprit->last_lines = {"Traceback", "ValueError: x", "", "-----", "====="};
    CHECK_THAT(format_verdict(verdict, {"train"}, CulpritStderr::kShownAmongOthers),
               Contains("\n  stderr      : printed above; its last line:\n    | ValueError: x\n  restarts"));
    verdict.culprit->last_lines.clear();
    CHECK_THAT(format_verdict(verdict, {"train"}, CulpritStderr::kShownAbove), !Contains("printed above"));
}

TEST_CASE("the diagnosis of a rank that kept the culprit waiting follows the reason", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 1, false});
    verdict.diagnosis = "LAGGING rank 3 (node n1): has finished nothing";
    CHECK_THAT(format_verdict(verdict, {"train"}),
               Contains("no restart was left\nLAGGING rank 3 (node n1): has finished nothing\nFirst failure:\n"));
}

TEST_CASE("the first victim of another rank follows the diagnosis and is not called the first failure", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 1, false});
    verdict.diagnosis = "LAGGING rank 3 (node n1): has finished nothing";
    verdict.hint = "Look at rank 3";
    verdict.first_victim = true;
    const std::string text = format_verdict(verdict, {"train"});
    CHECK_THAT(text,
               Contains("\nLAGGING rank 3 (node n1): has finished nothing\nrank 5 on n12 failed and no restart was "
                        "left\nFirst victim:\n  rank        : 5 ") &&
                   !Contains("First failure"));
    CHECK_THAT(text, Contains("\n  exit code   : 1\nLook at rank 3.\n====") && !Contains("--log-dir keeps"));
}

TEST_CASE("the box names command and job, for a terminal that shows two jobs", "[agent]") {
    const Verdict verdict = failure({ExitStatus::Kind::kExited, 1, false});
    CHECK_THAT(
        format_verdict(verdict, {"train", "train --lr 1", "mnist"}),
        Contains("\ntrain FAILED\n") && Contains("\n  command     : train --lr 1\n  job         : mnist\n  restarts"));
    CHECK_THAT(format_verdict(verdict, {"train"}), !Contains("command     :") && !Contains("job         :"));
}

TEST_CASE("a line that a worker repeats appears in the box once", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 1, false});
    verdict.culprit->last_lines = {"lost", "lost", "lost", "", "", "again", "lost"};
    CHECK_THAT(format_verdict(verdict, {"train"}),
               Contains("    | lost  (x3)\n    |\n    | again\n    | lost\n  restarts"));
}

TEST_CASE("a dead worker's operation appears once: in the diagnosis or, if it is not there, below it", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kSignaled, SIGKILL, false});
    verdict.culprit->activity = "in #183 all_reduce sum f32[4] 'bucket 3' of group 'world' for 0.3 s";
    verdict.diagnosis =
        "DEAD rank 5 (node n12, killed by SIGKILL): " + verdict.culprit->activity + "; ranks 0-4 waited";
    verdict.names_activity = true;
    CHECK_THAT(format_verdict(verdict, {"train"}),
               Contains("no restart was left\nDEAD rank 5 (node n12, ") && !Contains("at its end"));
    verdict.diagnosis = "";
    verdict.names_activity = false;
    CHECK_THAT(format_verdict(verdict, {"train"}), Contains("at its end  : in #183"));
}

TEST_CASE("a kill by the kernel is distinguished from one by another process, as far as that is known", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kSignaled, SIGKILL, false});
    verdict.culprit->oom = OomKill::kYes;
    CHECK_THAT(format_verdict(verdict, {"t"}),
               Contains("process 4242 was killed by SIGKILL by the kernel's out-of-memory killer\n") &&
                   Contains("Memory ran out there"));
    verdict.culprit->oom = OomKill::kMaybe;
    CHECK_THAT(format_verdict(verdict, {"t"}), Contains("was killed by SIGKILL, perhaps by the kernel's") &&
                                                   Contains("Unless a user or a scheduler sent the signal"));
    verdict.culprit->oom = OomKill::kNo;
    CHECK_THAT(format_verdict(verdict, {"t"}),
               Contains("was killed by SIGKILL\n") &&
                   Contains("A user, a scheduler, the program itself or its limit of CPU time"));
    verdict.culprit->status = {ExitStatus::Kind::kExited, 137, false};
    CHECK_THAT(format_verdict(verdict, {"t"}), Contains("exited with code 137\n") && !Contains("emory"));
    verdict.culprit->oom = OomKill::kYes;  // of what the script had started
    CHECK_THAT(
        format_verdict(verdict, {"t"}),
        Contains("exited with code 137: the kernel's out-of-memory killer has") && Contains("Memory ran out there"));
}

TEST_CASE("advice fits the way of failing", "[agent]") {
    using Kind = ExitStatus::Kind;
    CHECK_THAT(format_verdict(failure({Kind::kSignaled, SIGSEGV, true}), {"t"}),
               Contains("core dumped") && Contains("crashed"));
    Verdict python = failure({Kind::kSignaled, SIGSEGV, false});
    CHECK_THAT(format_verdict(python, {"t"}), Contains("PYTHONFAULTHANDLER=1"));
    python.culprit->last_lines = {"Current thread 0x00007f5c2c5f6740 (most recent call first):", "  File \"segv.py\""};
    CHECK_THAT(format_verdict(python, {"t"}), Contains("core file") && !Contains("PYTHONFAULTHANDLER"));
    CHECK_THAT(format_verdict(failure({Kind::kExited, 127, false}), {"t"}), Contains("installed on that host"));
    CHECK_THAT(format_verdict(failure({Kind::kExited, 126, false}), {"t"}), Contains("chmod +x"));
    CHECK_THAT(format_verdict(failure({Kind::kExited, 1, false}), {"t"}), Contains("--log-dir"));
}

TEST_CASE("a crash while an operation is under way is reported with the rule for its buffers", "[agent]") {
    const auto rule = Contains(" An operation was under way: its buffers must stay in place until its Work has ended.");
    using Kind = ExitStatus::Kind;
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT}) {
        Verdict verdict = failure({Kind::kSignaled, signal, false});
        CAPTURE(signal);
        if (signal == SIGABRT) {
            verdict.culprit->activity = "in #1 all_reduce sum f32[4] of group 'world' for 2 ms";
            CHECK_THAT(format_verdict(verdict, {"t"}), !rule);
            verdict.culprit->last_lines = {"free(): invalid pointer"};
        }
        for (const char* activity :
             {"in #1 all_reduce sum f32[4] of group 'world' for 2 ms", "in send #3 f32[4] peer 1 tag 0 for 2 ms",
              "had finished #1 barrier, 5 ms before, with #2 barrier under way for 5 ms"}) {
            verdict.culprit->activity = activity;
            CHECK_THAT(format_verdict(verdict, {"t"}), rule);
        }
        for (const char* activity : {"", "had done no collective", "failed in #1 barrier, 5 ms before",
                                     "had finished #1 barrier, 5 ms before"}) {
            verdict.culprit->activity = activity;
            CHECK_THAT(format_verdict(verdict, {"t"}), !rule);
        }
    }
}

TEST_CASE("a worker that its GPU has ended leads to the GPU, not to its group", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 71, false});
    verdict.hint = "That rank did so itself";
    verdict.culprit->last_lines = {
        "[ddp] rank 1: ncclCommAbort did not return within 1.0 s: CUDA device 1 does not answer, and this process ends "
        "with code 71"};
    CHECK_THAT(format_verdict(verdict, {"t"}), Contains("nvidia-smi") && !Contains("That rank did so itself"));
    verdict.culprit->last_lines = {"a code of the program's own"};
    CHECK_THAT(format_verdict(verdict, {"t"}), !Contains("nvidia-smi") && Contains("That rank did so itself"));
}

TEST_CASE("a program that lacks a library is not reported as missing", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 127, false});
    verdict.culprit->last_lines = {
        "train: error while loading shared libraries: libddp.so.0.1: cannot open shared "
        "object file: No such file or directory"};
    CHECK_THAT(format_verdict(verdict, {"t"}), Contains("not a library that it needs") && Contains("LD_LIBRARY_PATH") &&
                                                   !Contains("Check the program's name"));
}

TEST_CASE("a missing Python module is reported with the interpreter that has not found it", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 1, false});
    const JobName job{.program = "train.py", .interpreter = "/usr/bin/python3 (the first python3 on PATH)"};
    const std::string advice =
        "\nNo module 'torch': on this node the program runs under /usr/bin/python3 (the first python3 on PATH). "
        "Install "
        "it there, or activate the environment that has it before ddprun starts, or set PYTHON_EXEC to another "
        "Python.\n";
    for (const char* line : {"ModuleNotFoundError: No module named 'torch'", "/usr/bin/python3: No module named torch",
                             "ModuleNotFoundError: No module named 'torch'; 'x' is not a package"}) {
        verdict.culprit->last_lines = {"Traceback (most recent call last):", line};
        INFO(line);
        CHECK_THAT(format_verdict(verdict, job), Contains(advice));
        CHECK_THAT(format_verdict(verdict, {"python3"}), !Contains("PYTHON_EXEC"));  // the user chose the interpreter
    }
    verdict.culprit->last_lines = {"ValueError: no module"};
    CHECK_THAT(format_verdict(verdict, job), !Contains("PYTHON_EXEC"));
    verdict.culprit->message = "ModuleNotFoundError: No module named 'torch'";
    CHECK_THAT(format_verdict(verdict, job), Contains(advice));
    verdict.hint = "Look at rank 3";
    CHECK_THAT(format_verdict(verdict, job), Contains("Look at rank 3.\n") && !Contains("PYTHON_EXEC"));
}

TEST_CASE("a script whose first line names a Python that is not there is to be run with --run-path", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 127, false});
    verdict.culprit->last_lines = {"/usr/bin/env: 'python': No such file or directory"};
    CHECK_THAT(format_verdict(verdict, {"train"}), Contains("pass --run-path"));
}

TEST_CASE("a program's message about its arguments comes before rank and host", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 2, false});
    verdict.restarts = 0;
    verdict.reason = "rank 5 on n12 exited with code 2";
    verdict.culprit->last_lines = {"Usage: train.py [-h] --lr LR", "", "train.py: error: --lr is required"};
    verdict.culprit->log_file = "/logs/run/gen-1/rank-5.err";
    const std::string rule(78, '-'), end(78, '=');
    CHECK(format_verdict(verdict, {"train.py"}) ==
          end + "\ntrain.py FAILED\n" + rule +
              "\nrank 5 on n12 exited with code 2\n    | Usage: train.py [-h] --lr LR\n    |\n    | train.py: error: "
              "--lr is required\nPut arguments of the program behind its name, and options of ddprun before it.\n"
              "  rank        : 5 (local rank 1) on n12 (node rank 1), process 4242\n"
              "  log file    : /logs/run/gen-1/rank-5.err\n"
              "  exit code   : 2\n" +
              end + "\n");
    for (const char* line :
         {"train: --stepz: no such option. See train --help", "Try 'train --help' for more information.",
          "  usage: train", "./train: unrecognized option '--stepz'", "train: invalid option -- 'z'"}) {
        verdict.culprit->last_lines = {"loading", line};
        INFO(line);
        CHECK_THAT(format_verdict(verdict, {"t"}), !Contains("First failure") && Contains("behind its name"));
    }
    verdict.culprit->activity = "had done no collective";  // it has run
    CHECK_THAT(format_verdict(verdict, {"t"}), Contains("First failure:\n"));
    verdict.culprit->activity = "";
    verdict.culprit->status.number = 1;
    CHECK_THAT(format_verdict(verdict, {"t"}), Contains("First failure:\n"));
}

TEST_CASE("a program that mentions usage or help and ends with 2 has not rejected its arguments", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 2, false});
    verdict.culprit->log_file = "/logs/run/gen-1/rank-5.err";
    for (const char* line : {"step 9000 GPU memory usage: 78 GiB", "disk full", "CPU usage: 3 %",
                             "memory usage:", "tune it with --help-wanted", "an invalid option was chosen: lr 0",
                             "see bench --help, or the manual, for faster ways", "--help"}) {
        verdict.culprit->last_lines = {line, "giving up"};
        INFO(line);
        CHECK_THAT(format_verdict(verdict, {"t"}), Contains("First failure:\n") && Contains("host        : n12") &&
                                                       Contains("log file    : /logs/run/gen-1/rank-5.err") &&
                                                       !Contains("behind its name"));
    }
}

TEST_CASE("a worker that never started is not given a process id", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 127, false});
    verdict.culprit->pid = 0;
    verdict.culprit->message = "cannot execute /x/y: No such file or directory";
    const std::string text = format_verdict(verdict, {"y"});
    CHECK_THAT(text, Contains("could not be started") && Contains("| cannot execute /x/y") && !Contains("process 0"));
    CHECK_THAT(text, !Contains("Check"));  // the message says what to do
}

TEST_CASE("ends without a culprit are distinguished", "[agent]") {
    Verdict verdict;
    verdict.outcome = Outcome::kInfrastructure;
    verdict.exit_code = 69;
    verdict.reason = "1 of 2 nodes is left";
    verdict.hint = "Look on n2 for what ended it";
    CHECK_THAT(format_verdict(verdict, {"t"}),
               Contains("INFRASTRUCTURE FAILURE (not a failure of t)") && Contains("1 of 2 nodes is left") &&
                   Contains("\nLook on n2 for what ended it.\n") && !Contains("same command again"));
    verdict.outcome = Outcome::kStopped;  // on purpose: worth a line
    CHECK(format_verdict(verdict, {"t"}).empty());
}

TEST_CASE("a worker that the node could not start is a failure of the node, and its message is shown once", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 69, false});
    verdict.outcome = Outcome::kInfrastructure;
    verdict.culprit->pid = 0;
    verdict.culprit->message = "cannot fork: Resource temporarily unavailable. Raise `ulimit -u`.";
    verdict.reason = "the agent on n12 could not start rank 5: " + verdict.culprit->message;
    verdict.names_message = true;
    const std::string text = format_verdict(verdict, {"train"});
    CHECK_THAT(text,
               Contains("not a failure of train") && Contains("could not start rank 5") && Contains("has not run"));
    CHECK_THAT(text, !Contains("First failure") && !Contains("same command again"));
    CHECK(text.find("Raise `ulimit -u`") == text.rfind("Raise `ulimit -u`"));
}

TEST_CASE("the box names the log file with the rest of the output", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 1, false});
    verdict.culprit->log_file = "/logs/run/gen-1/rank-5.err";
    CHECK_THAT(format_verdict(verdict, {"t"}), Contains("log file    : /logs/run/gen-1/rank-5.err") &&
                                                   Contains("its stdout") && !Contains("--log-dir"));
}

TEST_CASE("text of other nodes cannot control the terminal", "[agent]") {
    Verdict verdict = failure({ExitStatus::Kind::kExited, 1, false});
    verdict.reason = "rank 5 on n\x1b[2J12 exited\a";
    verdict.culprit->host = "n\x1b[2J12";
    verdict.culprit->last_lines = {"\x1b]0;title\a"};
    verdict.culprit->log_file = "/logs/\r/x";
    const std::string text = format_verdict(verdict, {"t"});
    CHECK_THAT(text, Contains("rank 5 on n12 exited\\x07\n") && Contains("n12 (node "));
    CHECK(text.find_first_of("\x1b\a\r") == std::string::npos);
}

TEST_CASE("the box lists the other ranks that failed by themselves, folded, and victims apart", "[agent]") {
    constexpr ExitStatus kExit1{ExitStatus::Kind::kExited, 1};
    Verdict verdict = failure(kExit1);
    verdict.also_failed = {
        {{{6, 1}}, kExit1, {}, true}, {{{0, 5}, {7, 56}}, kExit1}, {{{63, 1}}, {ExitStatus::Kind::kSignaled, SIGSEGV}}};
    const std::string text = format_verdict(verdict, {"train"});
    CHECK_THAT(text, Contains("  also failed : ranks 0-4, 7-62 exited with code 1\n"
                              "  also failed : rank 63 was killed by SIGSEGV\n"
                              "  victims     : rank 6 exited with code 1\n"));
}

TEST_CASE("the limits of CPU time and of file sizes are named as what ended a worker", "[agent]") {
    const auto text = [](int signal) {
        return format_verdict(failure({ExitStatus::Kind::kSignaled, signal, false}), {"train"});
    };
    CHECK_THAT(text(SIGXCPU), Contains("used up its CPU time") && Contains("ulimit -t"));
    CHECK_THAT(text(SIGXFSZ), Contains("larger than its limit") && Contains("ulimit -f"));
    Verdict killed = failure({ExitStatus::Kind::kSignaled, SIGKILL, false});
    killed.culprit->oom = OomKill::kNo;
    CHECK_THAT(format_verdict(killed, {"train"}), Contains("ulimit -Ht"));
}
