#include <boost/json.hpp>

#include <fmt/format.h>

#include <utility>

#include "rendezvous/coordinator/messages_fields.hpp"
#include "rendezvous/coordinator/messages_inspect_json.hpp"
#include "rendezvous/coordinator/messages_json.hpp"

namespace ddprun::coordinator {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDepth = 8;  // verdict, culprit, status, and room for members of later versions
/// 36 years: they are added to times, which count nanoseconds.
constexpr std::int64_t kMaxMilliseconds = (std::int64_t{1} << 60) / 1'000'000;
constexpr std::int64_t kMaxFailingMs = 3'600'000;

Generation generation(Fields& in) { return Generation{in.integer("generation", 0, kMaxGeneration)}; }

ExitStatus read_status(Fields in) {
    ExitStatus status;
    const std::string kind = in.text("kind");
    if (kind == "signaled") {
        status.kind = ExitStatus::Kind::kSignaled;
    } else if (kind != "exited") {
        in.fail_at("kind", "must be \"exited\" or \"signaled\"");
    }
    status.number = in.small("number", 0, kind == "signaled" ? 127 : 255);
    status.core_dumped = in.boolean("core_dumped");
    return status;
}

/// A word of a later version tells this one nothing.
OomKill read_oom(Fields& in) {
    const std::string name = in.text("oom");
    if (name == "no") return OomKill::kNo;
    if (name == "maybe") return OomKill::kMaybe;
    return name == "yes" ? OomKill::kYes : OomKill::kUnknown;
}

FailureReport read_failure(Fields in) {
    FailureReport failure;
    failure.rank = Rank{in.small("rank", 0)};
    failure.local_rank = LocalRank{in.small("local_rank", 0)};
    failure.node_rank = NodeRank{in.small("node_rank", 0)};
    failure.host = in.text("host");
    failure.pid = in.small("pid", 0);
    failure.status = read_status(in.object("status"));
    failure.message = in.text("message");
    failure.last_lines = in.list("last_lines");
    if (in.has("failing_for_ms")) {
        failure.failing_for = std::chrono::milliseconds(in.integer("failing_for_ms", 0, kMaxFailingMs));
    }
    if (in.has("activity")) failure.activity = in.text("activity");
    if (in.has("oom")) failure.oom = read_oom(in);
    if (in.has("log_file")) failure.log_file = in.text("log_file");
    return failure;
}

Outcome read_outcome(Fields& in) {
    const std::string name = in.text("outcome");
    if (name == "succeeded") return Outcome::kSucceeded;
    if (name == "worker_failed") return Outcome::kWorkerFailed;
    if (name == "stopped") return Outcome::kStopped;
    if (name != "infrastructure") in.fail_at("outcome", "is not an outcome that this version knows");
    return Outcome::kInfrastructure;
}

Verdict read_verdict(Fields in) {
    Verdict verdict;
    verdict.outcome = read_outcome(in);
    verdict.exit_code = in.small("exit_code", 0, 255);
    verdict.reason = in.text("reason");
    if (in.has("culprit")) verdict.culprit = read_failure(in.object("culprit"));
    verdict.restarts = in.small("restarts", 0);
    if (in.has("judged")) verdict.judged = in.text("judged");
    if (in.has("hint")) verdict.hint = in.text("hint");
    if (in.has("bystander")) verdict.bystander = in.boolean("bystander");
    return verdict;
}

/// Nothing but the protocol version is read from a Join of another version: its other members may have changed.
Join read_join(Fields& in) {
    Join join;
    join.protocol = in.small("protocol", 0);
    join.node = in.text("node");
    if (join.protocol != kProtocolVersion) return join;
    join.host = in.text("host");
    join.pid = in.small("pid", 0);
    join.slots = in.small("slots", 0);
    join.min_nodes = in.small("min_nodes", 0);
    join.max_nodes = in.small("max_nodes", 0);
    join.max_restarts = in.small("max_restarts", 0);
    if (in.has("run_id")) join.run_id = in.text("run_id");
    if (in.has("node_rank")) join.node_rank = in.small("node_rank", 0);
    if (in.has("session")) join.session = in.text("session");
    join.boards = in.has("boards") && in.boolean("boards");
    return join;
}

Welcome read_welcome(Fields& in) {
    Welcome welcome;
    welcome.run_id = in.text("run_id");
    welcome.heartbeat_interval = std::chrono::milliseconds(in.integer("heartbeat_interval_ms", 1, kMaxMilliseconds));
    welcome.lost_after = std::chrono::milliseconds(in.integer("lost_after_ms", 1, kMaxMilliseconds));
    if (in.has("node_name")) welcome.node_name = in.text("node_name");
    if (in.has("session")) welcome.session = in.text("session");
    welcome.boards = in.has("boards") && in.boolean("boards");
    return welcome;
}

Waiting read_waiting(Fields& in) {
    Waiting waiting;
    waiting.present = in.list("present");
    waiting.min_nodes = in.small("min_nodes", 0);
    waiting.max_nodes = in.small("max_nodes", 0);
    waiting.waited = std::chrono::milliseconds(in.integer("waited_ms", 0, kMaxMilliseconds));
    waiting.reason = in.text("reason");
    return waiting;
}

Assignment read_assignment(Fields& in) {
    Assignment assignment;
    assignment.generation = generation(in);
    assignment.node_rank = NodeRank{in.small("node_rank", 0)};
    assignment.node_count = in.small("node_count", 1);
    assignment.rank_base = in.small("rank_base", 0);
    assignment.world_size = in.small("world_size", 1);
    assignment.master_addr = in.text("master_addr");
    assignment.master_port = in.small("master_port", 0, 65'535);
    assignment.restart_count = in.small("restart_count", 0);
    assignment.max_restarts = in.small("max_restarts", 0);
    assignment.reason = in.text("reason");
    if (in.has("restart")) assignment.restart = in.small("restart", 0);
    return assignment;
}

std::optional<AgentMessage> read_agent_message(const std::string& type, Fields& in) {
    if (type == "join") return read_join(in);
    if (type == "heartbeat") return Heartbeat{};
    if (type == "worker_failed") {
        WorkerFailed message;
        message.generation = generation(in);
        message.failure = read_failure(in.object("failure"));
        return message;
    }
    if (type == "worker_finished") {
        WorkerFinished message;
        message.generation = generation(in);
        message.rank = Rank{in.small("rank", 0)};
        return message;
    }
    if (type == "group_stopped") return GroupStopped{generation(in)};
    if (type == "group_succeeded") return GroupSucceeded{generation(in)};
    if (type == "leave") return Leave{in.small("signal", 1, 127)};
    if (type == "stalled") return read_stalled(in);
    if (type == "shown_board") return read_shown_board(in);
    if (type == "inspect") return read_inspect(in);
    return std::nullopt;
}

std::optional<DaemonMessage> read_daemon_message(const std::string& type, Fields& in) {
    if (type == "welcome") return read_welcome(in);
    if (type == "heartbeat") return Heartbeat{};
    if (type == "waiting") return read_waiting(in);
    if (type == "assignment") return read_assignment(in);
    if (type == "abort") {
        Abort message;
        message.generation = generation(in);
        message.reason = in.text("reason");
        return message;
    }
    if (type == "finished") return Finished{read_verdict(in.object("verdict"))};
    if (type == "rejected") {
        Rejected message;
        message.reason = in.text("reason");
        message.try_again = in.has("try_again") && in.boolean("try_again");
        return message;
    }
    if (type == "show_boards") return read_show_boards(in);
    if (type == "notice") return read_notice(in);
    if (type == "shown_board") return read_shown_board(in);
    if (type == "inspected") return read_inspected(in);
    return std::nullopt;
}

template <typename Message>
Result<Message> decode(std::string_view text, std::optional<Message> (*read)(const std::string&, Fields&)) {
    if (text.size() > kMaxMessageBytes) {
        return Error{Errc::kLimit,
                     fmt::format("a control message of {} bytes is larger than {}", text.size(), kMaxMessageBytes)};
    }
    boost::system::error_code code;
    json::parse_options options;
    options.max_depth = kMaxDepth;
    const json::value value = json::parse(text, code, {}, options);
    if (code) return Error{Errc::kMalformed, fmt::format("a control message is not JSON: {}", code.message())};
    std::optional<Error> problem;
    Fields in(value, "", problem);
    const std::string type = in.text("type");
    std::optional<Message> message;
    if (!problem) message = read(type, in);
    if (!problem && !message) in.fail_at("type", "is not one that this side understands");
    if (problem) return *std::move(problem);
    return *std::move(message);
}

}  // namespace

Result<AgentMessage> decode_agent_message(std::string_view text) { return decode(text, &read_agent_message); }
Result<DaemonMessage> decode_daemon_message(std::string_view text) { return decode(text, &read_daemon_message); }

}  // namespace ddprun::coordinator
