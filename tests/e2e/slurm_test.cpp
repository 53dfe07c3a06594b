// srun ddprun without an option, on a real SLURM cluster. Skipped where the tools for it are absent.

#include "tests/e2e/slurm.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/ddp_script.hpp"

namespace {

using Catch::Contains;
using e2e::Seconds;

std::string program() { return (e2e::bin() / "ddprun").string(); }

std::vector<std::string> srun(std::vector<std::string> options, std::vector<std::string> arguments) {
    options.insert(options.begin(), "srun");
    options.push_back(program());
    options.insert(options.end(), arguments.begin(), arguments.end());
    return options;
}

/// Prints one line per worker: the world size, the run id and the host.
const std::vector<std::string> kShowWorld{"--nproc_per_node", "2", "sh", "-c",
                                          "echo world $WORLD_SIZE of $TORCHELASTIC_RUN_ID on $(hostname)"};

std::multiset<std::string> lines_of(const std::string& text) {
    std::multiset<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.insert(line);
    return lines;
}

/// Returns the run id in the first line of kShowWorld.
std::string run_id_of(const std::string& out) {
    std::istringstream stream(out);
    std::string world, size, of, id;
    stream >> world >> size >> of >> id;
    return id;
}

/// Returns whether srun gave up by itself, before any task ran: fifty of them at once can be more than the controller
/// answers in time. ddprun and its workers have written nothing then.
bool never_started(const ddprun::ExitStatus& status, const std::string& err) {
    const auto is_of_srun = [](const std::string& line) {
        return line.starts_with("srun: ") && line.find("task") == std::string::npos;
    };
    return status.exit_code() == 1 && !err.empty() && std::ranges::all_of(lines_of(err), is_of_srun);
}

/// Expects the workers of one world of two nodes with two workers each.
void check_world(const std::string& out) {
    const std::string id = run_id_of(out);
    CAPTURE(out);
    CHECK_THAT(id, Catch::StartsWith("slurm-"));
    const std::string first = "world 4 of " + id + " on n1";
    const std::string second = "world 4 of " + id + " on n2";
    CHECK(lines_of(out) == std::multiset<std::string>{first, first, second, second});
}

}  // namespace

TEST_CASE("srun -N2 ddprun without an option makes one world, beside another job on the same nodes", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm");
    {
        const e2e::Slurm slurm(sandbox, 2);
        e2e::Process first(sandbox, slurm.login(srun({"-N2"}, kShowWorld)));
        e2e::Process second(sandbox, slurm.login(srun({"-N2"}, kShowWorld)));
        for (e2e::Process* const job : {&first, &second}) {
            const auto status = job->wait(Seconds(60));
            CAPTURE(job->err());
            CHECK(status.exit_code() == 0);
            check_world(job->out());
            CHECK_THAT(job->err(), !Contains("INSECURE"));
        }
        CHECK(run_id_of(first.out()) != run_id_of(second.out()));
        e2e::check_no_leftovers(slurm);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("an ordinary user's step needs no option", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-user");
    const std::string home = e2e::home_of_nobody(sandbox);
    const e2e::Slurm slurm(sandbox, 2);
    auto command = slurm.login(srun({"-N2"}, kShowWorld), "nobody");
    command.env["HOME"] = home;
    const auto outcome = e2e::run(sandbox, command, Seconds(60));
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    check_world(outcome.out);
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("a PyTorch script trains in a step of SLURM without an option", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-pytorch");
    if (!e2e::torch_is_installed(sandbox)) {
        WARN("SKIPPED: python3-torch is not installed");
        return;
    }
    e2e::write_file(sandbox.path() / "script.py", e2e::kDdpScript);
    const e2e::Slurm slurm(sandbox, 2);
    const auto outcome =
        e2e::run(sandbox, slurm.login(srun({"-N2", "-c2"}, {"--nproc_per_node", "2", "script.py"})), Seconds(120));
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    e2e::check_ddp_output(outcome.out, 4);
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("a step that would become a smaller world is refused with the line to use", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-refusals");
    const e2e::Slurm slurm(sandbox, 2);
    const auto refused = [&](std::vector<std::string> argv) {
        const auto outcome = e2e::run(sandbox, slurm.login(std::move(argv)), Seconds(60));
        CAPTURE(outcome.out, outcome.err);
        CHECK(outcome.status.exit_code() == 2);
        CHECK(outcome.out == "");
        return outcome.err;
    };
    CHECK_THAT(refused(srun({"-N2", "--ntasks-per-node=2"}, kShowWorld)),
               Contains("srun has started 2 tasks on a node") && Contains("srun --nodes=2 --ntasks=2 ddprun"));
    CHECK_THAT(
        refused({"salloc", "-N2", program(), "echo"}),
        Contains("has 2 nodes, and each of them needs its own ddprun") && Contains("srun --nodes=2 --ntasks=2 ddprun"));
    CHECK_THAT(refused({"salloc", "-N1", program(), "echo"}), Contains("this shell is not on n"));
    CHECK_THAT(refused({"salloc", "-N2", "srun", "-n1", "-N1", program(), "echo"}),
               Contains("has 1 of the 2 nodes of the job. Pass --nnodes 1 if that is intended"));
    CHECK_THAT(refused(srun({"-N2"}, {"--nnodes", "1", "echo"})), Contains("each would train alone"));
    const auto intended = e2e::run(
        sandbox, slurm.login({"salloc", "-N2", "srun", "-n1", "-N1", program(), "--nnodes", "1", "echo", "alone"}),
        Seconds(60));
    CHECK(intended.out == "alone\n");
}

TEST_CASE("the line of a refusal makes one world although the job asks for more tasks", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-line");
    const e2e::Slurm slurm(sandbox, 3, {"--cpus", "4"});
    const std::vector<std::string> show{program(), "sh", "-c", "echo world $WORLD_SIZE"};
    const std::vector<std::string> next{":", "--het-group=1", "--nodes=2", "--ntasks=2"};
    const auto joined = [](const std::vector<std::vector<std::string>>& parts) {
        std::vector<std::string> all;
        for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
        return all;
    };
    const auto check = [&](const std::vector<std::string>& argv, const std::multiset<std::string>& lines) {
        const auto outcome = e2e::run(sandbox, slurm.login(argv), Seconds(60));
        CAPTURE(outcome.err);
        CHECK(outcome.status.exit_code() == 0);
        CHECK(lines_of(outcome.out) == lines);
    };
    check(joined({{"salloc", "-N2", "--ntasks-per-node=2", "srun", "--nodes=2", "--ntasks=2"}, show}),
          {"world 2", "world 2"});
    const std::vector<std::string> het{"salloc", "-N1", "-n2", ":", "-N2", "-n4"};
    check(joined({het, {"srun", "--het-group=0", "--nodes=1", "--ntasks=1"}, show, next, show}),
          {"world 3", "world 3", "world 3"});
}

TEST_CASE("a heterogeneous step is one world", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-het");
    const e2e::Slurm slurm(sandbox, 3);
    const std::vector<std::string> show{program(), "sh", "-c", "echo world $WORLD_SIZE"};
    std::vector<std::string> argv{"srun", "-N1", "-n1"};
    argv.insert(argv.end(), show.begin(), show.end());
    argv.insert(argv.end(), {":", "-N2", "-n2"});
    argv.insert(argv.end(), show.begin(), show.end());
    const auto outcome = e2e::run(sandbox, slurm.login(argv), Seconds(60));
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(lines_of(outcome.out) == std::multiset<std::string>{"world 3", "world 3", "world 3"});
}

TEST_CASE("jobs that start at once on the same hosts do not join each other", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    constexpr int kJobs = 50;
    const e2e::Sandbox sandbox("slurm-many");
    const e2e::Slurm slurm(sandbox, 2, {"--cpus", "100"});
    const std::vector<std::string> show{"sh", "-c", "echo world $WORLD_SIZE of $TORCHELASTIC_RUN_ID"};
    std::deque<e2e::Process> jobs;
    const auto is_wide = [](int job) { return job % 2 == 1; };
    const auto start = [&](int job) {
        auto options = is_wide(job) ? std::vector<std::string>{"-N2", "-n2"} : std::vector<std::string>{"-N1", "-wn1"};
        jobs.emplace_back(sandbox, slurm.login(srun(std::move(options), show)));
    };
    for (int job = 0; job < kJobs; ++job) start(job);
    std::set<std::string> ids;
    for (int job = 0; job < kJobs; ++job) {
        auto status = jobs[static_cast<std::size_t>(job)].wait(Seconds(240));
        const bool again = never_started(status, jobs[static_cast<std::size_t>(job)].err());
        if (again) {
            WARN("srun did not start job " << job << ": " << jobs[static_cast<std::size_t>(job)].err());
            start(job);
            status = jobs.back().wait(Seconds(240));
        }
        e2e::Process& process = again ? jobs.back() : jobs[static_cast<std::size_t>(job)];
        const std::string id = run_id_of(process.out());
        CAPTURE(job, process.err(), process.out());
        CHECK(status.exit_code() == 0);
        const int size = is_wide(job) ? 2 : 1;
        const std::string line = "world " + std::to_string(size) + " of " + id;
        const auto lines = lines_of(process.out());
        CHECK(static_cast<int>(lines.size()) == size);
        CHECK(static_cast<int>(lines.count(line)) == size);
        ids.insert(id);
    }
    CHECK(ids.size() == kJobs);
    e2e::check_no_leftovers(slurm);
}
