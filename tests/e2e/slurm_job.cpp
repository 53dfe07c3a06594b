#include "tests/e2e/slurm_job.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <set>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/training.hpp"

namespace e2e {
namespace {

/// Makes a copy of the script with the edits, and returns its name.
std::string copy_script(const Sandbox& sandbox, const Submission& submission) {
    std::string text = read_file(source() / "scripts/slurm" / submission.script);
    REQUIRE(text != "");
    for (const auto& [from, to] : submission.edits) {
        const auto position = text.find(from);
        INFO("to be replaced in " << submission.script << ": " << from);
        REQUIRE(position != std::string::npos);
        text.replace(position, from.size(), to);
    }
    write_file(sandbox.path() / submission.script, text);
    return (sandbox.path() / submission.script).string();
}

/// Polls SLURM twice a second until `condition` is true; returns false when `limit` passes first.
bool eventually_in_slurm(Seconds limit, const std::function<bool()>& condition) {
    auto next = std::chrono::steady_clock::now();
    return eventually(limit, [&] {
        if (std::chrono::steady_clock::now() < next) return false;
        next = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
        return condition();
    });
}

std::string program_path() { return fmt::format("{}:{}", bin().string(), std::getenv("PATH")); }

}  // namespace

SlurmJob::SlurmJob(const Sandbox& sandbox, const Slurm& slurm, const Submission& submission)
    : sandbox_(sandbox), slurm_(slurm), name_(submission.script.substr(0, submission.script.find('.'))) {
    std::vector<std::string> argv{"sbatch", "--parsable"};
    argv.insert(argv.end(), submission.options.begin(), submission.options.end());
    argv.push_back(copy_script(sandbox, submission));
    argv.insert(argv.end(), submission.arguments.begin(), submission.arguments.end());
    Command command = slurm.login(argv, submission.user);
    command.env = submission.env;
    command.env.try_emplace("PATH", program_path());
    const Outcome outcome = run(sandbox, command);
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.status.success());
    id_ = outcome.out.substr(0, outcome.out.find('\n'));
}

std::string SlurmJob::login(std::vector<std::string> argv) const {
    return run(sandbox_, slurm_.login(std::move(argv))).out;
}

std::string SlurmJob::field(const std::string& name, const std::string& job) const {
    std::istringstream fields(login({"scontrol", "--oneliner", "show", "job", job}));
    for (std::string field; fields >> field;)
        if (field.starts_with(name + "=")) return field.substr(name.size() + 1);
    return "";
}

std::string SlurmJob::end(Seconds limit, const std::string& job) const {
    static const std::set<std::string> kEnds{"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"};
    std::string state;
    const bool ended = eventually_in_slurm(limit, [&] { return kEnds.contains(state = field("JobState", job)); });
    INFO("output of the job:\n" << output());
    CAPTURE(job, state);
    REQUIRE(ended);
    return state + " " + field("ExitCode", job);
}

bool SlurmJob::is_requeued(Seconds limit) const {
    return eventually_in_slurm(limit, [&] { return field("Restarts") == "1"; });
}

std::string SlurmJob::output(const std::string& name) const {
    return read_file(sandbox_.path() / (name.empty() ? fmt::format("{}-{}.out", name_, id_) : name));
}

std::vector<std::string> small_training(const Sandbox& sandbox, int steps) {
    return {"--steps",
            std::to_string(steps),
            "--global-batch",
            "32",
            "--hidden1",
            "64",
            "--hidden2",
            "64",
            "--checkpoint-every",
            "20",
            "--progress",
            "plain",
            "--loss-log",
            (sandbox.path() / "losses").string()};
}

void reach_step(const Sandbox& sandbox, const SlurmJob& job, int step) {
    const bool reached = eventually(Seconds(60), [&] { return read_losses(sandbox.path() / "losses").contains(step); });
    INFO("output of the job:\n" << job.output());
    REQUIRE(reached);
}

void check_losses(const Sandbox& sandbox, int steps) {
    const auto losses = read_losses(sandbox.path() / "losses");
    CHECK(static_cast<int>(losses.size()) == steps);
    std::vector<std::string> argv{(bin() / "ddprun").string(), "--nnodes", "2",
                                  "--nproc_per_node",          "2",        "--local-nodes",
                                  (bin() / "train").string()};
    auto options = small_training(sandbox, steps);
    options.back() = (sandbox.path() / "undisturbed").string();
    options.insert(options.end(), {"--checkpoint-dir", (sandbox.path() / "undisturbed.ckpt").string()});
    argv.insert(argv.end(), options.begin(), options.end());
    const Outcome outcome = run(sandbox, {.argv = argv});
    INFO(outcome.err);
    REQUIRE(outcome.status.success());
    CHECK(losses == read_losses(sandbox.path() / "undisturbed"));
}

}  // namespace e2e
