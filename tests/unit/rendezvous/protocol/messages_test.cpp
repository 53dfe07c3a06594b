#include <fmt/format.h>

#include <random>

#include "common/text/utf8.hpp"
#include "rendezvous/protocol/json.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/protocol/message_generator.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using Catch::Contains;
using namespace std::chrono_literals;

namespace {

/// A whole WorkerFailed, but for one member of its failure or of its status.
std::string failed_with(const std::string& member, const std::string& value) {
    std::string text =
        R"({"type":"worker_failed","generation":1,"failure":{"rank":0,"local_rank":0,"node_rank":0,"host":"h","pid":1,)"
        R"("status":{"kind":"exited","number":1,"core_dumped":false},"message":"","last_lines":[]}})";
    const std::size_t at = text.find('"' + member + "\":") + member.size() + 3;
    return text.replace(at, text.find_first_of(",}", at) - at, value);
}

std::string join_and(const std::string& rest) {
    return R"({"type":"join","protocol":9,"node":"a","host":"h","pid":1,"programs":[{"role":"c","slots":1,"max_restarts":0}],"min_nodes":1,"max_nodes":1,"scale_up":"never","stop_grace_ms":9)" +
           rest;
}

/// A Join with all members that must be there, and `rest`.
std::string whole_join_and(const std::string& rest) {
    return join_and(R"(,"launch":{"command":"a","command_hash":"2a","user":"b","uid":7})" + rest);
}

Error agent_error(std::string_view text) {
    const auto decoded = decode_agent_message(text);
    INFO(text.substr(0, 200));
    REQUIRE(decoded.has_error());
    return decoded.error();
}

}  // namespace

TEST_CASE("every message survives being written and read", "[coordinator]") {
    const auto seed = GENERATE(take(300, random(0u, 0xffffffffu)));
    CAPTURE(seed);
    Generator generate(seed);
    for (int i = 0; i < 20; ++i) {
        const AgentMessage agent = generate.agent_message();
        CAPTURE(encode(agent));
        CHECK(decode_agent_message(encode(agent)).value() == agent);
        const DaemonMessage daemon = generate.daemon_message();
        CAPTURE(encode(daemon));
        CHECK(decode_daemon_message(encode(daemon)).value() == daemon);
    }
}

TEST_CASE("messages look as documented", "[coordinator]") {
    CHECK(encode(AgentMessage(Heartbeat{7, 5})) == R"({"type":"heartbeat","number":7,"heard":5})");
    CHECK(encode(AgentMessage(Leave{15})) == R"({"type":"leave","signal":15})");
    CHECK(encode(DaemonMessage(Abort{Generation{3}, "node n2 \"was\" lost\n"})) ==
          R"({"type":"abort","generation":3,"reason":"node n2 \"was\" lost\n"})");
    CHECK(to_json(Verdict{Outcome::kStopped, 143, "stopped by a signal", {}, 2}) ==
          R"({"outcome":"stopped","exit_code":143,"reason":"stopped by a signal","restarts":2})");
    Join join;
    join.node = "0a";
    join.host = "n1";
    join.launch = {"train", 42, "alice", 1000};
    CHECK(
        encode(AgentMessage(join)) ==
        R"({"type":"join","protocol":9,"node":"0a","host":"n1","pid":0,"programs":[{"role":"default","slots":1,"max_restarts":0}],)"
        R"("min_nodes":1,"max_nodes":1,"scale_up":"immediate","stop_grace_ms":30000,"launch":{"command":"train","command_hash":"000000000000002a","user":"alice","uid":1000}})");
}

TEST_CASE("unknown members are ignored, so that a later version may add some", "[coordinator]") {
    CHECK(decode_agent_message(R"({"type":"leave","signal":2,"why":{"deep":[1,2]}})").value() ==
          AgentMessage(Leave{2}));
}

TEST_CASE("a message cut short anywhere is an error", "[coordinator]") {
    Generator generate(7);
    for (int i = 0; i < 40; ++i) {
        const std::string agent = encode(generate.agent_message());
        for (std::size_t bytes = 0; bytes < agent.size(); ++bytes)
            CHECK(decode_agent_message(agent.substr(0, bytes)).has_error());
        const std::string daemon = encode(generate.daemon_message());
        for (std::size_t bytes = 0; bytes < daemon.size(); ++bytes)
            CHECK(decode_daemon_message(daemon.substr(0, bytes)).has_error());
    }
}

TEST_CASE("a message with any byte changed is read or refused, never more", "[coordinator]") {
    Generator generate(11);
    std::mt19937 random(11);
    for (int i = 0; i < 3000; ++i) {
        std::string text = i % 2 ? encode(generate.agent_message()) : encode(generate.daemon_message());
        text[random() % text.size()] = static_cast<char>(random() % 256);
        if (const auto agent = decode_agent_message(text))
            CHECK(decode_agent_message(encode(*agent)).value() == *agent);
        if (const auto daemon = decode_daemon_message(text))
            CHECK(decode_daemon_message(encode(*daemon)).value() == *daemon);
    }
}

TEST_CASE("the error of a malformed message names the member", "[coordinator]") {
    const auto [text, says] = GENERATE(table<std::string, std::string>({
        {"", "not JSON"},
        {"leave", "not JSON"},
        {"{} {}", "not JSON"},
        {"\xff", "not JSON"},
        {"{\"type\":\"leave\x01\"}", "not JSON"},
        {"{\"type\":\"\xc3(\"}", "not JSON"},
        {R"({"type":"leave","signal":1e999})", "signal must be an integer"},
        {"null", "the message must be an object"},
        {"[]", "the message must be an object"},
        {R"("leave")", "the message must be an object"},
        {"{}", "type is missing"},
        {R"({"type":5})", "type must be a string"},
        {R"({"type":null})", "type must be a string"},
        {R"({"type":"fly"})", "type is unknown to this version"},
        {R"({"type":"assignment"})", "type is unknown to this version"},
        {R"({"type":"leave"})", "signal is missing"},
        {R"({"type":"leave","signal":"9"})", "signal must be an integer"},
        {R"({"type":"leave","signal":9.5})", "signal must be an integer"},
        {R"({"type":"leave","signal":0})", "signal must be between 1 and 127"},
        {R"({"type":"leave","signal":-9})", "signal must be between"},
        {R"({"type":"leave","signal":4294967305})", "signal must be between"},
        {R"({"type":"leave","signal":18446744073709551615})", "signal must be between"},
        {R"({"type":"leave","signal":99999999999999999999})", "signal must be an integer"},
        {R"({"type":"group_stopped","generation":-1})", "generation must be between"},
        {R"({"type":"group_stopped","generation":9223372036854775807})", "generation must be between"},
        {R"({"type":"group_succeeded","generation":true})", "generation must be an integer"},
        {R"({"type":"worker_failed","generation":1})", "failure is missing"},
        {R"({"type":"worker_failed","generation":1,"failure":[]})", "failure must be an object"},
        {failed_with("number", "256"), "failure.status.number must be between 0 and 255"},
        {failed_with("kind", R"("left")"), "failure.status.kind must be"},
        {failed_with("core_dumped", "0"), "failure.status.core_dumped must be true or false"},
        {failed_with("last_lines", R"(["a",2])"), "failure.last_lines[] must be a string"},
        {failed_with("last_lines", R"("a")"), "failure.last_lines must be an array"},
        {failed_with("rank", "-1"), "failure.rank must be between"},
        {failed_with("host", R"([])"), "failure.host must be a string"},
        {join_and("}"), "launch is missing"},
        {whole_join_and(R"(,"node_rank":"x"})"), "node_rank must be an integer"},
        {whole_join_and(R"(,"run_id":3})"), "run_id must be a string"},
    }));
    CAPTURE(text);
    CHECK(agent_error(text).code == Errc::kMalformed);
    CHECK_THAT(agent_error(text).message, Contains(says));
}

TEST_CASE("a Join of another protocol version is read as far as its version, so that it can be answered",
          "[coordinator]") {
    const auto decoded = decode_agent_message(R"({"type":"join","protocol":10,"node":"a","host":{"name":"h"}})");
    REQUIRE(decoded.has_value());
    CHECK(std::get<Join>(*decoded).protocol == 10);
    CHECK(std::get<Join>(*decoded).node == "a");
}

TEST_CASE("messages that are too large or too deep are refused", "[coordinator]") {
    CHECK(agent_error(std::string(kMaxMessageBytes + 1, ' ')).code == Errc::kLimit);
    CHECK(agent_error(R"({"type":"leave","signal":2,"x":)" + std::string(100'000, '[')).code == Errc::kMalformed);
    const std::string deep = R"({"type":"leave","signal":2,"x":)" + std::string(9, '[') + std::string(9, ']') + "}";
    CHECK_THAT(agent_error(deep).message, Contains("not JSON"));

    const std::string host(kMaxTextBytes + 1, 'h');
    const Error error = agent_error(R"({"type":"join","protocol":9,"node":"a","host":")" + host + "\"}");
    CHECK(error.code == Errc::kLimit);
    CHECK_THAT(error.message, Contains("host is longer than"));

    std::string names = "\"h\"";
    for (int i = 0; i < 600'000; ++i) names += ",\"h\"";
    const auto waiting = decode_daemon_message(fmt::format(
        R"({{"type":"waiting","present":[{}],"min_nodes":1,"max_nodes":1,"waited_ms":0,"reason":""}})", names));
    REQUIRE(waiting.has_error());
    CHECK(waiting.error().code == Errc::kLimit);
    CHECK_THAT(waiting.error().message, Contains("present is larger than"));
}

TEST_CASE("a sender cuts texts and lists that a receiver would refuse", "[coordinator]") {
    WorkerFailed failed;
    failed.failure.message = std::string(1 << 20, '\x01');
    for (int i = 0; i < 100; ++i)
        failed.failure.last_lines.push_back(fmt::format("{}{}", i, std::string(60'000, '\x02')));
    failed.failure.last_lines.push_back("the last line");
    const std::string text = encode(AgentMessage(failed));
    CHECK(text.size() <= kMaxMessageBytes);
    const FailureReport read = std::get<WorkerFailed>(decode_agent_message(text).value()).failure;
    CHECK(read.message.size() == kMaxTextBytes);
    CHECK_THAT(read.message, Catch::EndsWith("…"));
    CHECK(read.last_lines.size() == 18);
    CHECK(read.last_lines.back() == "the last line");
    CHECK(read.last_lines.front().substr(0, 2) == "83");

    const Waiting crowd{std::vector<std::string>(2'000'000, ""), 1, 1, 0ms, ""};
    CHECK(std::get<Waiting>(decode_daemon_message(encode(DaemonMessage(crowd))).value()).present.size() ==
          kMaxListBytes);
}

TEST_CASE("a message carries text that is not UTF-8", "[coordinator]") {
    std::mt19937 random(5);
    for (int i = 0; i < 2000; ++i) {  // the JSON parser checks the result
        std::string text(random() % 30, '\0');
        for (char& c : text) c = static_cast<char>(random() % 4 ? 0x80 + random() % 0x80 : random() % 0x80);
        CAPTURE(text);
        const auto decoded = decode_daemon_message(encode(DaemonMessage(Rejected{text})));
        REQUIRE(decoded.has_value());
        CHECK(std::get<Rejected>(*decoded).reason == clean_text(text, kMaxTextBytes));
    }
}

TEST_CASE("a flight record with numbers out of all range is refused, naming the member", "[coordinator]") {
    RecordReply shown;
    shown.record.view.groups.push_back({"world", 0, 4, {{0, 4, 1}}, true, 1, 1, 0});
    RecordedOperation& operation = shown.record.view.operations.emplace_back();
    operation.group = 0;
    operation.op = "barrier";
    const std::string good = encode(AgentMessage(shown));
    REQUIRE(decode_agent_message(good).has_value());
    const auto with = [&](const std::string& part, const std::string& other) {
        std::string text = good;
        const auto at = text.find(part);
        REQUIRE(at != std::string::npos);
        return decode_agent_message(text.replace(at, part.size(), other));
    };
    CHECK_THAT(with("[0,4,1]", "[0,4]").error().message, Contains("record.groups[].members must be"));
    CHECK_THAT(with("[0,4,1]", "[-1,4,1]").error().message, Contains("has a run beyond all ranks"));
    CHECK_THAT(with("[0,4,1]", "[0,100000000,100]").error().message, Contains("has a run beyond all ranks"));
    CHECK_THAT(with("\"group\":0", "\"group\":1").error().message,
               Contains("record.operations[].group must be between"));
    CHECK_THAT(with("\"queued_ago_ns\":0", "\"queued_ago_ns\":-1").error().message, Contains("queued_ago_ns"));
    const std::string rest_of_group = R"("abort_reason":"","left_by_exception":true,)";
    // The diagnosis adds durations.
    for (const std::string member :
         {"operations[].queued_ago_ns", "operations[].started_ago_ns", "operations[].ended_ago_ns",
          "operations[].waited_ago_ns", "groups[].aborted_ago_ns", "groups[].left_ago_ns", "phase_for_ns",
          "ended_ago_ns", "process_before_ago_ns", "stopped_for_ns"}) {
        const std::string name = "\"" + member.substr(member.rfind('.') + 1) + "\":";
        const bool of_operation = member.starts_with("operations");
        const bool of_group = member.starts_with("groups");
        const std::string before = of_operation ? "\"id\":0" : of_group ? "\"name\":" : "\"pid\":0";
        const std::string huge = name + "9223372036854775807,";
        const auto refused = name == "\"queued_ago_ns\":" || name == "\"phase_for_ns\":"
                                 ? with(name + "0", name + "9223372036854775807")
                                 : with(before, huge + (of_group ? rest_of_group : "") + before);
        CAPTURE(member);
        REQUIRE(refused.has_error());
        CHECK_THAT(refused.error().message,
                   Contains("record." + member + " must be between 0 and 1152921504606846976"));
    }
    shown.record.view.groups.resize(65, shown.record.view.groups.front());
    CHECK_THAT(decode_agent_message(encode(AgentMessage(shown))).error().message, Contains("has more than 64 entries"));
}

TEST_CASE("times that an agent adds to its clock have a bound", "[coordinator]") {
    const std::string good = encode(DaemonMessage(Welcome{"run", 1000ms, 3000ms}));
    REQUIRE(decode_daemon_message(good).has_value());
    for (const std::string part : {R"("heartbeat_interval_ms":1000)", R"("lost_after_ms":3000)"}) {
        std::string text = good;
        REQUIRE(text.find(part) != std::string::npos);
        text.replace(text.find(part), part.size(), part.substr(0, part.find(':') + 1) + "9007199254740992");
        CHECK_THAT(decode_daemon_message(text).error().message, Contains("_ms must be between 1 and 1152921504606"));
    }
}

TEST_CASE("the largest flight record fits into one message", "[coordinator]") {
    RecordReply shown;
    const std::string worst(128, '\x01');
    const std::vector<RankRun> runs(32, {1 << 26, 1, 1 << 26});
    shown.record.view.groups.resize(
        64, {worst, 1, 1 << 26, runs, true, 1, 1, 1, std::chrono::nanoseconds::max(), 1ull << 53, worst});
    RecordedOperation operation{1ull << 53, 63, 1ull << 53, 1ull << 53};
    operation.op = worst.substr(0, 16);
    operation.reduce = operation.dtype = worst.substr(0, 8);
    operation.tag = worst.substr(0, 40);
    operation.count = operation.input_count = operation.output_count = 1ull << 53;
    operation.fingerprint = ~0ull;
    operation.timeout = std::chrono::milliseconds(UINT32_MAX);
    operation.queued_ago = std::chrono::nanoseconds::max();
    operation.started_ago = operation.ended_ago = operation.waited_ago = operation.queued_ago;
    operation.failed = operation.timed_out = operation.mismatch = operation.polled = true;
    shown.record.view.operations.resize(kMaxOperationsShown, operation);
    const std::string text = encode(AgentMessage(shown));
    CHECK(text.size() < kMaxMessageBytes / 2);
    const auto read = decode_agent_message(text);
    REQUIRE(read.has_value());
    const std::chrono::nanoseconds longest = std::get<RecordReply>(*read).record.view.operations[0].queued_ago;
    CHECK(longest > std::chrono::hours(24 * 365 * 30));  // cut to the receiver's limit
    CHECK(longest < std::chrono::nanoseconds::max());
}

TEST_CASE("without reported waits, an operation that has begun may be waited for", "[coordinator]") {
    RecordReply shown;
    shown.record.view.groups.push_back({"world", 0, 2, {{0, 2, 1}}, true, 1, 1, 0});
    RecordedOperation operation{1, 0, 1, 0, "barrier"};
    operation.started_ago = std::chrono::seconds(9);
    shown.record.view.operations = {operation, operation};
    shown.record.view.operations[1].p2p_seq = 1;
    const auto decoded = [](const std::string& text) {
        return std::get<RecordReply>(decode_agent_message(text).value()).record.view.operations;
    };
    std::string text = encode(AgentMessage(shown));
    CHECK_FALSE(decoded(text)[0].waited_ago);
    const std::string flag = R"("has_waits":true,)";
    REQUIRE(text.find(flag) != std::string::npos);
    text.erase(text.find(flag), flag.size());
    CHECK(decoded(text)[0].waited_ago == std::chrono::seconds(9));
    CHECK_FALSE(decoded(text)[0].polled);
    CHECK(decoded(text)[1].polled);
}

TEST_CASE("the state of a worker's process is described as it is, or as it ended", "[protocol]") {
    RankRecord record;
    CHECK(describe_process(record) == "");
    record.process = ProcessState::kInKernel;
    CHECK(describe_process(record) == "in the kernel");
    record.process = ProcessState::kEnded;
    CHECK(describe_process(record) == "ended");  // its agent is yet to reap it
    record.status = ExitStatus{ExitStatus::Kind::kSignaled, 9};
    record.ended_ago = std::chrono::milliseconds(4200);
    CHECK(describe_process(record) == "was killed by SIGKILL, 4.2 s ago");
}
