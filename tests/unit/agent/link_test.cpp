// The decisions about the connection to the daemon.
#include "agent/link/link.hpp"

#include <type_traits>
#include <variant>
#include <vector>

#include "common/exit_codes.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

template <typename T, typename Variant>
constexpr bool kIsOneOf = false;
template <typename T, typename... Types>
constexpr bool kIsOneOf<T, std::variant<Types...>> = (std::is_same_v<T, Types> || ...);
/// Whether it is an action of the link itself, not an event that the link raises.
template <typename T>
constexpr bool kIsAction = kIsOneOf<T, link::Action>;

/// Drives link::step() as DaemonLink does, on a clock of its own, and keeps the actions of the newest event.
class Driver {
public:
    Driver() {
        state.daemon = "the rendezvous daemon at host:1";
        state.join.node = "n1";
        state.connect_timeout = 60s;
    }

    void at(Duration since_start, link::Happening what) {
        now = TimePoint(100s) + since_start;
        link::Step taken = link::step(std::move(state), {now, std::move(what)});
        state = std::move(taken.next);
        actions = std::move(taken.actions);
    }
    /// Lets time pass with a Tick at each deadline. Returns the time of the first action that `Wanted` names.
    template <typename Wanted>
    Duration pass_until(Duration end) {
        while (const auto due = link::next_deadline(state)) {
            if (*due > TimePoint(100s) + end) break;
            at(*due - TimePoint(100s), link::Tick{});
            if (find<Wanted>() != nullptr) return now - TimePoint(100s);
        }
        return end;
    }

    template <typename Wanted>
    [[nodiscard]] const Wanted* find() const {
        for (const link::Action& action : actions) {
            if constexpr (kIsAction<Wanted>) {
                if (const auto* found = std::get_if<Wanted>(&action)) return found;
            } else if (const auto* raised = std::get_if<link::Raise>(&action)) {
                if (const auto* found = std::get_if<Wanted>(&raised->event)) return found;
            }
        }
        return nullptr;
    }
    [[nodiscard]] std::vector<protocol::AgentMessage> sent() const {
        std::vector<protocol::AgentMessage> messages;
        for (const link::Action& action : actions)
            if (const auto* send = std::get_if<link::Send>(&action)) messages.push_back(send->message);
        return messages;
    }

    link::State state;
    TimePoint now;
    std::vector<link::Action> actions;
};

protocol::Welcome welcome() {
    protocol::Welcome welcome;
    welcome.session = "daemon 1";
    welcome.records = true;
    welcome.heartbeat_interval = 500ms;
    welcome.lost_after = 3s;
    welcome.reconnect_grace = 750ms;
    welcome.hold = 30s;
    return welcome;
}

/// Returns a link that is connected and welcomed at the start.
Driver welcomed() {
    Driver link;
    link.at(0ms, link::Started{});
    link.at(0ms, link::Connected{});
    link.at(0ms, link::Received{welcome()});
    return link;
}

}  // namespace

TEST_CASE("a link dials, joins and is welcomed", "[agent][link]") {
    Driver link;
    link.at(0ms, link::Started{});
    REQUIRE(link.find<link::Dial>() != nullptr);
    CHECK(link.find<link::Dial>()->deadline == TimePoint(160s));
    CHECK(link.find<link::Dial>()->pace.reports);
    CHECK(!link::next_deadline(link.state));
    link.at(1s, link::Connected{});
    CHECK(link.sent() == std::vector<protocol::AgentMessage>{link.state.join});
    CHECK(!link::can_send_now(link.state));
    link.at(2s, link::Received{welcome()});
    CHECK(link.find<Welcomed>() != nullptr);
    CHECK(link.find<link::ReleaseStandby>() != nullptr);
    CHECK(link.find<ConnectionChanged>() == nullptr);
    CHECK(link::can_send_now(link.state));
    CHECK(link.state.join.session == "daemon 1");
    CHECK(link.pass_until<link::Send>(10s) == 2s);  // heartbeats begin at once
    CHECK(link.pass_until<link::Send>(10s) == 2500ms);
}

TEST_CASE("a daemon that never welcomes this node is given up at connect_timeout", "[agent][link]") {
    Driver link;
    link.at(0ms, link::Started{});
    SECTION("it does not answer") {
        link.at(60s, link::DialFailed{{Errc::kTimeout, "cannot reach it"}});
        REQUIRE(link.find<DaemonLost>() != nullptr);
        CHECK(link.find<DaemonLost>()->why == "cannot reach it");
    }
    SECTION("it answers no Join, on any connection") {
        link.at(0s, link::Connected{});
        for (const Duration reset_at : {2s, 6s, 14s, 30s}) {  // each waits twice as long
            CHECK(link.pass_until<link::Reset>(100s) == reset_at);
            link.at(reset_at, link::ConnectionEnded{"the rendezvous daemon at host:1: reset"});
            CHECK(link.pass_until<link::Dial>(100s) == reset_at);
            CHECK(link.find<link::Dial>()->deadline == TimePoint(160s));
            link.at(reset_at, link::Connected{});
        }
        CHECK(link.pass_until<DaemonLost>(100s) == 60s);
        CHECK(link.find<DaemonLost>()->why == "the rendezvous daemon at host:1 has sent nothing for 60 s");
    }
    SECTION("it answers neither the Join nor another connection") {
        link.at(1s, link::Connected{});
        CHECK(link.pass_until<link::Reset>(100s) == 3s);
        link.at(3s, link::ConnectionEnded{"the rendezvous daemon at host:1: reset"});
        link.at(3s, link::Tick{});
        link.at(60s, link::DialFailed{{Errc::kTimeout, "cannot reach it"}});
        CHECK(link.find<DaemonLost>()->why == "the rendezvous daemon at host:1 has sent nothing for 60 s");
    }
    SECTION("it answers no Join, and ends") {
        link.at(1s, link::Connected{});
        CHECK(link.pass_until<link::Reset>(100s) == 3s);
        link.at(3s, link::ConnectionEnded{"the rendezvous daemon at host:1: reset"});
        link.at(3s, link::Tick{});
        link.at(60s, link::DialFailed{{Errc::kUnreachable, "cannot reach it"}});
        CHECK(link.find<DaemonLost>()->why == "cannot reach it");
    }
    SECTION("it closes each connection") {
        for (Duration at = 0s; at < 60s; at += 200ms) {
            link.at(at, link::Connected{});
            link.at(at + 50ms, link::ConnectionEnded{"the rendezvous daemon at host:1: closed"});
            CHECK((link.find<ConnectionChanged>() != nullptr) == (at == 0s));  // reported once
            if (link.state.phase == link::Phase::kEnded) break;
            REQUIRE(link.pass_until<link::Dial>(at + 200ms) < at + 200ms);
        }
        link.at(60s, link::Connected{});
        link.at(60s, link::ConnectionEnded{"the rendezvous daemon at host:1: closed"});
        CHECK(link.find<DaemonLost>() != nullptr);
    }
    CHECK(link.state.phase == link::Phase::kEnded);
}

TEST_CASE("a first connection that the network has broken unseen is replaced", "[agent][link]") {
    Driver link;
    link.at(0ms, link::Started{});
    link.at(0ms, link::Connected{});
    CHECK(link.pass_until<link::Reset>(60s) == 2s);
    link.at(2s, link::ConnectionEnded{"the rendezvous daemon at host:1: reset"});
    REQUIRE(link.find<ConnectionChanged>() != nullptr);
    CHECK(link.find<ConnectionChanged>()->text ==
          "the rendezvous daemon at host:1 has sent nothing for 2.0 s; connecting again");
    CHECK(link.pass_until<link::Dial>(60s) == 2s);
    link.at(2100ms, link::Connected{});
    CHECK(link.sent() == std::vector<protocol::AgentMessage>{link.state.join});
    link.at(2200ms, link::Received{welcome()});
    CHECK(link.find<Welcomed>() != nullptr);
    CHECK(link.pass_until<LeaseEnded>(60s) == 4600ms);
}

TEST_CASE("a connection that ends is dialled again at once, and reports are repeated", "[agent][link]") {
    Driver link = welcomed();
    const protocol::AgentMessage old = protocol::GroupStopped{Generation{1}};
    const protocol::AgentMessage report = protocol::GroupSucceeded{Generation{2}};
    const protocol::AgentMessage leave = protocol::Leave{15};
    link.at(1s, link::Reported{old});
    CHECK(link.sent() == std::vector{old});
    link.at(1s, link::GroupBegun{Generation{2}});
    link.at(1s, link::Reported{leave});
    link.at(5s, link::ConnectionEnded{"the rendezvous daemon at host:1: closed"});
    REQUIRE(link.find<ConnectionChanged>() != nullptr);
    CHECK(link.find<ConnectionChanged>()->text == "lost the rendezvous daemon at host:1: closed; connecting again");
    link.at(5s, link::Reported{report});
    CHECK(link.sent().empty());
    CHECK(link.pass_until<link::Dial>(6s) == 5s);
    CHECK(link.find<link::Dial>()->pace.max_pause == link::kDialInterval);
    link.at(5050ms, link::Connected{});
    CHECK(link.sent() == std::vector<protocol::AgentMessage>{link.state.join, leave, report});
    CHECK(!link::can_send_now(link.state));
    link.at(5100ms, link::Received{welcome()});
    CHECK(link.find<ConnectionChanged>()->text == "connected to the rendezvous daemon again");
    CHECK(link::can_send_now(link.state));
    link.at(5120ms, link::ConnectionEnded{"the rendezvous daemon at host:1: closed"});
    link.at(5130ms, link::Tick{});
    CHECK(link.pass_until<link::Dial>(6s) >= 5100ms);  // 0.1 s after the dial before
}

TEST_CASE("a daemon that confirms nothing ends the lease, then the workers, and is given up at last", "[agent][link]") {
    Driver link = welcomed();
    link.state.join.max_nodes = 2;
    CHECK(link.pass_until<LeaseEnded>(60s) == 2500ms);
    CHECK(link.find<link::Reset>() != nullptr);
    CHECK(link.find<LeaseEnded>()->why == "the rendezvous daemon at host:1 is not connected");
    CHECK(link.find<LeaseEnded>()->held_until == TimePoint(130s));
    link.at(2500ms, link::ConnectionEnded{"the rendezvous daemon at host:1: reset"});
    CHECK(link.find<ConnectionChanged>()->text ==
          "the rendezvous daemon at host:1 has confirmed nothing for 2.5 s; connecting again");
    CHECK(link.pass_until<link::Dial>(60s) == 2500ms);
    CHECK(link.find<link::Dial>()->deadline == TimePoint(190s));
    CHECK(link.find<link::Dial>()->pace.refused_until == TimePoint(103s));
    SECTION("it is not reached again") {
        CHECK(link.pass_until<HoldEnded>(60s) == 30s);
        CHECK(link.find<HoldEnded>()->given_up_at == TimePoint(190s));
        CHECK(link.find<HoldEnded>()->why ==
              "the rendezvous daemon at host:1 has confirmed nothing for 30.0 s, and it could not be reached again");
        CHECK(link.pass_until<DaemonLost>(100s) == 90s);
        CHECK(link.find<DaemonLost>()->exit_code == exit_code::kInfrastructure);
        CHECK(link.find<DaemonLost>()->why ==
              "the rendezvous daemon at host:1 has confirmed nothing for 90.0 s, and it could not be reached again");
        CHECK(link.find<DaemonLost>()->remedy ==
              "Find out what ended ddprund on that host, or what interrupted the network; then start this node's "
              "command again if the other nodes still run, else the job on all nodes");
    }
    SECTION("it is reached after its workers have ended") {
        CHECK(link.pass_until<HoldEnded>(60s) == 30s);
        link.at(60s, link::Connected{});
        link.at(60s, link::Received{welcome()});
        CHECK(link.find<Welcomed>() != nullptr);
        CHECK(link.pass_until<HoldEnded>(100s) == 90s);  // 30 s after the Join
    }
    SECTION("this process stood still while it dialled") {
        link.at(150s, link::DialFailed{{GENERATE(Errc::kTimeout, Errc::kUnreachable, Errc::kClosed), "failed"}});
        CHECK(link.find<DaemonLost>() == nullptr);
        REQUIRE(link.find<link::Dial>() != nullptr);
        CHECK(link.find<link::Dial>()->pace.refused_until == TimePoint(253s));
        SECTION("and does not reach it then, either") { CHECK(link.pass_until<DaemonLost>(200s) == 153s); }
        SECTION("and its port refuses connections then, too") {
            CHECK(link.pass_until<DaemonLost>(152900ms) == 152900ms);
            link.at(152950ms, link::DialFailed{{Errc::kClosed, "refused"}});
            CHECK(link.find<DaemonLost>() != nullptr);
        }
        SECTION("and another server has its port") {
            link.at(151s, link::DialFailed{{Errc::kRefused, "something that is not ddprund answers"}});
            CHECK(link.find<DaemonLost>() != nullptr);
        }
    }
    SECTION("its port refuses connections") {
        const auto code = GENERATE(Errc::kUnreachable, Errc::kClosed);
        link.at(3s, link::DialFailed{{code, "refused"}});
        REQUIRE(link.find<DaemonLost>() != nullptr);
        CHECK_THAT(
            link.find<DaemonLost>()->why,
            Catch::EndsWith(code == Errc::kClosed ? "and it could not be reached again: its port refuses connections"
                                                  : "and it could not be reached again"));
    }
    SECTION("another server has its port") {
        link.at(3s, link::DialFailed{{Errc::kRefused, "something that is not ddprund answers."}});
        CHECK(link.find<DaemonLost>()->why ==
              "the rendezvous daemon at host:1 has confirmed nothing for 3.0 s, and it could not be reached again: "
              "something that is not ddprund answers");
    }
    SECTION("it answers no Join") {
        link.at(4s, link::Connected{});
        CHECK(link.pass_until<link::Reset>(60s) == 6s);
        CHECK(link.find<LeaseEnded>() == nullptr);  // raised once
    }
    SECTION("it welcomes this node again") {
        link.at(4s, link::Connected{});
        link.at(4s, link::Received{welcome()});
        CHECK(link.find<Welcomed>() != nullptr);
        CHECK(link.pass_until<LeaseEnded>(60s) == 6500ms);
    }
}

TEST_CASE("a connection that ended ends the lease after half the reconnect grace", "[agent][link]") {
    Driver link = welcomed();
    link.at(400ms, link::ConnectionEnded{"the rendezvous daemon at host:1: closed"});
    CHECK(link.pass_until<LeaseEnded>(60s) == 775ms);
    CHECK(link.find<link::Reset>() == nullptr);
    CHECK(link.find<LeaseEnded>()->why == "the rendezvous daemon at host:1 is not connected");
}

TEST_CASE("an agent that was stopped asks the daemon before it ends its workers", "[agent][link]") {
    Driver link = welcomed();
    SECTION("a timer shows that") { link.at(60s, link::Tick{}); }
    SECTION("a message shows that") { link.at(60s, link::Received{protocol::Heartbeat{1, 0}}); }
    link.at(60s, link::Tick{});
    CHECK(link.find<HoldEnded>() == nullptr);
    CHECK(link.state.lease_ended);
    CHECK(link.pass_until<HoldEnded>(100s) == 63s);
}

TEST_CASE("a node that stood still reports its own pause, and only as long as that is the cause", "[agent][link]") {
    Driver link = welcomed();
    CHECK(link.pass_until<link::Send>(1s) == 0s);
    link.at(9s, link::Tick{});  // due at 0.5 s
    CHECK(link.find<link::Reset>() != nullptr);
    link.at(9s, link::ConnectionEnded{"the rendezvous daemon at host:1: reset"});
    CHECK(link.find<ConnectionChanged>()->text ==
          "this node stood still for 8.5 s, and the rendezvous daemon at host:1 has confirmed nothing for 9.0 s; "
          "connecting again");
    CHECK(link.pass_until<HoldEnded>(60s) == 30s);
    CHECK(link.find<HoldEnded>()->why ==
          "the rendezvous daemon at host:1 has confirmed nothing for 30.0 s, and it could not be reached again");
}

TEST_CASE("a Welcome that has waited in the socket of a stopped agent is not used", "[agent][link]") {
    Driver link = welcomed();
    link.at(1s, link::ConnectionEnded{"the rendezvous daemon at host:1: closed"});
    link.at(1s, link::Tick{});
    link.at(1s, link::Connected{});
    link.at(5s, link::Received{welcome()});
    CHECK(link.find<Welcomed>() == nullptr);
    CHECK(link.find<LeaseEnded>() != nullptr);
    CHECK(link.find<link::Reset>() != nullptr);
}

TEST_CASE("after the last message of the daemon nothing follows the end of its connection", "[agent][link]") {
    Driver link = welcomed();
    SECTION("the verdict") { link.at(1s, link::Received{protocol::Finished{}}); }
    SECTION("a rejection for good") {
        link.at(1s, link::Received{protocol::Rejected{"the job is over", false, 0ms}});
        CHECK(link.find<DaemonLost>()->why ==
              "the rendezvous daemon at host:1 rejects this node again: the job is over");
    }
    link.at(2s, link::ConnectionEnded{"the rendezvous daemon at host:1: closed"});
    CHECK(link.actions.empty());
    CHECK(link.state.phase == link::Phase::kEnded);
}

TEST_CASE("a job that has all its nodes is tried for its time, and once more", "[agent][link]") {
    Driver link;
    link.at(0ms, link::Started{});
    link.at(0ms, link::Connected{});
    link.at(0ms, link::Received{protocol::Rejected{"it has all its nodes", true, 3s}});
    CHECK(link.find<link::ReleaseStandby>() != nullptr);
    CHECK(link.find<ConnectionChanged>() != nullptr);
    link.at(10ms, link::ConnectionEnded{"the rendezvous daemon at host:1: closed"});
    CHECK(link.pass_until<link::Dial>(1s) == 100ms);
    CHECK(link.find<link::Dial>()->deadline == TimePoint(104s));
    link.at(3s, link::Connected{});
    link.at(3s, link::Received{protocol::Rejected{"it has all its nodes", true, 3s}});
    REQUIRE(link.find<DaemonLost>() != nullptr);
    CHECK(link.find<DaemonLost>()->exit_code == exit_code::kUsage);
}

TEST_CASE("a closed link does nothing", "[agent][link]") {
    Driver link = welcomed();
    link.at(1s, link::Closed{});
    CHECK(!link::next_deadline(link.state));
    link.at(2s, link::ConnectionEnded{"the rendezvous daemon at host:1: closed"});
    link.at(2s, link::Reported{protocol::Leave{15}});
    CHECK(link.actions.empty());
}
