#pragma once
// The configuration of an agent for tests with a FakeDaemon: node 1 of 2, two workers, ranks 2 and 3.

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "agent/agent.hpp"
#include "tests/unit/agent/fake_daemon.hpp"

namespace agent_test {

using namespace ddprun;
using namespace ddprun::agent;
using namespace ddprun::protocol;
using namespace std::chrono_literals;

inline AgentConfig config(const FakeDaemon& daemon, std::vector<std::string> actions) {
    AgentConfig c;
    c.endpoint = daemon.endpoint();
    c.run_id = "run";
    c.node_name = "n12";
    c.node_rank = 1;
    c.min_nodes = 1;
    c.max_nodes = 3;
    actions.insert(actions.begin(), shapes());
    c.programs = {{.command = std::move(actions), .slots = 2, .max_restarts = 4}};
    c.grace = 10s;
    return c;
}

inline Assignment assignment(int generation) {
    Assignment a;
    a.generation = Generation{generation};
    a.node_rank = NodeRank{1};
    a.node_count = 2;
    a.rank_base = 2;
    a.world_size = 4;
    a.master_addr = "127.0.0.1";
    a.master_port = 1234;
    a.restart_count = generation - 1;
    return a;
}

inline Finished finished(Outcome outcome, int exit_code) {
    Finished f;
    f.verdict.outcome = outcome;
    f.verdict.exit_code = exit_code;
    f.verdict.reason = "the test says so";
    return f;
}

}  // namespace agent_test
