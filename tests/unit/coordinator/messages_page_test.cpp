// docs/control-messages.md names every message and every member that travels.
#include <boost/json.hpp>

#include <fstream>
#include <iterator>
#include <set>

#include "rendezvous/coordinator/messages_json.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::coordinator;
namespace json = boost::json;

namespace {

/// With every member that a message may have, so that none is left out of its text.
std::vector<std::string> all_messages() {
    const FailureReport failure{Rank{1},
                                LocalRank{1},
                                NodeRank{0},
                                "h",
                                7,
                                {},
                                "why",
                                {"last"},
                                "rank-1.err",
                                std::chrono::milliseconds(20),
                                "in #1 barrier"};
    Join join;
    join.run_id = "run";
    join.node_rank = 1;
    join.session = "session";
    join.boards = true;
    RankBoard board;
    board.view.groups.resize(1);
    board.view.groups[0].aborted_ago = board.view.groups[0].left_ago = std::chrono::nanoseconds(1);
    board.view.hidden_groups = 1;
    BoardOperation& operation = board.view.operations.emplace_back();
    operation = {1, 0, 1, 1, "send", "sum", "f32", "tag", 1, 1, 1, 1, 1, 1};
    operation.started_ago = operation.ended_ago = operation.waited_ago = std::chrono::nanoseconds(1);
    operation.failed = operation.timed_out = operation.mismatch = operation.polled = true;
    board.ended_ago = std::chrono::nanoseconds(1);
    const ShownBoard shown{Generation{1}, 1, true, board};
    const Inspect inspect{1, Rank{1}, 16};
    const std::vector<AgentMessage> from_agents{join,
                                                Heartbeat{},
                                                WorkerFailed{Generation{1}, failure},
                                                WorkerFinished{},
                                                GroupStopped{},
                                                GroupSucceeded{},
                                                Leave{15},
                                                Stalled{{}, {}, {}, 0, 0, {}, true},
                                                shown,
                                                inspect};
    const Welcome welcome{"run", std::chrono::milliseconds(1), std::chrono::milliseconds(3), "n1", "session", true};
    const Verdict verdict{Outcome::kWorkerFailed, 1, "why", failure, 0, "LAGGING rank 1"};
    const std::vector<DaemonMessage> from_daemon{welcome,
                                                 Heartbeat{},
                                                 Waiting{},
                                                 Assignment{},
                                                 Abort{},
                                                 Finished{verdict},
                                                 Rejected{"why", true},
                                                 ShowBoards{Generation{1}, 1, Rank{1}, 16},
                                                 Notice{},
                                                 shown,
                                                 Inspected{}};
    // A message that was added stands here too.
    REQUIRE(from_agents.size() == std::variant_size_v<AgentMessage>);
    REQUIRE(from_daemon.size() == std::variant_size_v<DaemonMessage>);
    std::vector<std::string> texts;
    for (const AgentMessage& message : from_agents) texts.push_back(encode(message));
    for (const DaemonMessage& message : from_daemon) texts.push_back(encode(message));
    return texts;
}

void collect_names(const json::value& value, std::set<std::string>& names) {
    const json::object* object = value.if_object();
    if (object == nullptr) return;
    for (const auto& [key, member] : *object) {
        names.emplace(key);
        if (key == "type" || key == "outcome" || key == "kind") names.emplace(member.as_string());
        collect_names(member, names);
    }
}

}  // namespace

TEST_CASE("the page of control messages names every message and every member", "[coordinator]") {
    std::ifstream file(DDPRUN_CONTROL_MESSAGES_PAGE);
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    REQUIRE_FALSE(page.empty());
    std::set<std::string> names;
    for (const std::string& text : all_messages()) collect_names(json::parse(text), names);
    CHECK(names.contains("failing_for_ms"));
    for (const std::string& name : names) {
        CAPTURE(name);
        CHECK(page.find('`' + name + '`') != std::string::npos);
    }
}
