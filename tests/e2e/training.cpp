#include "tests/e2e/training.hpp"

#include <fmt/format.h>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <sstream>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"

namespace e2e {
Command command_of(const Training& training) {
    Command command;
    if (!training.launch.empty()) {
        command.argv.push_back(launcher().string());
        command.argv.insert(command.argv.end(), training.launch.begin(), training.launch.end());
    }
    const std::vector<std::string> trainer{(bin() / "train").string(),
                                           "--steps",
                                           std::to_string(training.steps),
                                           "--global-batch",
                                           std::to_string(training.global_batch),
                                           "--hidden1",
                                           "192",
                                           "--hidden2",
                                           "128",
                                           "--seed",
                                           "7",
                                           "--progress",
                                           "none"};
    command.argv.insert(command.argv.end(), trainer.begin(), trainer.end());
    if (!training.losses.empty()) {
        command.argv.insert(command.argv.end(), {"--loss-log", training.losses.string()});
    }
    if (!training.checkpoint_dir.empty()) {
        command.argv.insert(command.argv.end(), {"--checkpoint-dir", training.checkpoint_dir, "--checkpoint-every",
                                                 std::to_string(training.checkpoint_every)});
    }
    command.argv.insert(command.argv.end(), training.more.begin(), training.more.end());
    return command;
}

std::map<int, std::string> read_losses(const std::filesystem::path& file) {
    std::map<int, std::string> losses;
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);) {
        const auto blank = line.find(' ');
        if (blank != std::string::npos) losses[std::stoi(line.substr(0, blank))] = line.substr(blank + 1);
    }
    return losses;
}

void reach_step(Process& job, const Training& training, int step) {
    const bool reached =
        eventually(Seconds(90), [&] { return read_losses(training.losses).contains(step) || !job.running(); });
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    REQUIRE(reached);
    REQUIRE(job.running());
}

boost::json::object final_json(const std::string& out) {
    const auto end = out.find_last_not_of('\n');
    REQUIRE(end != std::string::npos);
    const auto begin = out.rfind('\n', end);
    const std::string line = out.substr(begin == std::string::npos ? 0 : begin + 1, end - begin);
    INFO("last line of stdout: " << line);
    boost::json::error_code ec;
    const boost::json::value value = boost::json::parse(line, ec);
    REQUIRE_FALSE(ec);
    REQUIRE(value.is_object());
    return value.as_object();
}

std::optional<pid_t> worker(const Sandbox& sandbox, int rank, const std::string& program) {
    const std::string wanted = fmt::format("RANK={}", rank);
    for (const pid_t pid : sandbox.pids(program)) {
        const std::string environment = read_file(fmt::format("/proc/{}/environ", pid));
        std::istringstream entries(environment);
        for (std::string entry; std::getline(entries, entry, '\0');) {
            if (entry == wanted) return pid;
        }
    }
    return std::nullopt;
}

std::vector<pid_t> processes_of_node_of(pid_t worker) {
    const pid_t agent = ddprun::parent_of(worker);
    std::vector<pid_t> all{ddprun::parent_of(agent),
                           agent};  // the guard first, as a power cut would not let it clean up
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const std::string name = entry.path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        if (ddprun::parent_of(std::stoi(name)) == agent) all.push_back(std::stoi(name));
    }
    return all;
}

}  // namespace e2e
