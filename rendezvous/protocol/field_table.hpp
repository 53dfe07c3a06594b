#pragma once
// The field table of the control messages: visit_fields(message, field) names each member once, with its JSON key, its
// rule (field_rules.hpp) and whether it may be absent. The encoder, the decoder and the tests' generator are visitors:
//   field(key, member, rule)                     always written, must be there
//   field.optional(key, member, rule, absent)    written unless it equals `absent`; may be missing
//   field.each(key, vector, max_items, more...)  an array of objects; `more` is passed on to their visit_fields()
//   field.optional_each(key, vector, max_items)  the same, written unless it is empty; may be missing
//   field.mark(key)                              always written as true; returns whether it is there
// A later member may depend on an earlier one, which has been read by then. docs/control-messages.md is the same in
// prose.

#include <array>
#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

#include "common/flight_record_layout.hpp"
#include "common/job_limits.hpp"
#include "rendezvous/protocol/field_rules.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::protocol {

/// Holds for T and const T: one function serves the reader and the writer of a message.
template <typename M, typename T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

/// The `type` of a message.
template <typename Message>
inline constexpr std::string_view kType = {};

// ---- parts ----

inline constexpr std::array<std::pair<ExitStatus::Kind, std::string_view>, 2> kExitKindNames{
    {{ExitStatus::Kind::kExited, "exited"}, {ExitStatus::Kind::kSignaled, "signaled"}}};
inline constexpr std::array<std::pair<ProcessState, std::string_view>, 6> kProcessStateNames{
    {{ProcessState::kRunning, "running"},
     {ProcessState::kStopped, "stopped"},
     {ProcessState::kInKernel, "in_kernel"},
     {ProcessState::kEnded, "ended"},
     {ProcessState::kUnknown, "unknown"},
     {ProcessState::kNotStarted, "not_started"}}};
inline constexpr std::array<std::pair<OomKill, std::string_view>, 3> kOomKillNames{
    {{OomKill::kNo, "no"}, {OomKill::kMaybe, "maybe"}, {OomKill::kYes, "yes"}}};
inline constexpr std::array<std::pair<Outcome, std::string_view>, 5> kOutcomeNames{
    {{Outcome::kSucceeded, "succeeded"},
     {Outcome::kWorkerFailed, "worker_failed"},
     {Outcome::kStopped, "stopped"},
     {Outcome::kPreempted, "preempted"},
     {Outcome::kInfrastructure, "infrastructure"}}};

void visit_fields(Is<ExitStatus> auto& status, auto& field) {
    field("kind", status.kind, OneOf<ExitStatus::Kind>{kExitKindNames});
    field("number", status.number, Range{0, status.kind == ExitStatus::Kind::kSignaled ? 127 : 255});
    field("core_dumped", status.core_dumped);
}

void visit_fields(Is<FailureReport> auto& failure, auto& field) {
    field("rank", failure.rank);
    field("local_rank", failure.local_rank);
    field("node_rank", failure.node_rank);
    field("host", failure.host);
    field("pid", failure.pid);
    field("status", failure.status);
    field("message", failure.message);
    field("last_lines", failure.last_lines, Texts{Texts::Keep::kLast});
    field.optional("failing_for_ms", failure.failing_for, Range{0, 3'600'000});
    field.optional("activity", failure.activity);
    field.optional("peer_failed", failure.peer_failed);
    field.optional("oom", failure.oom, OneOf<OomKill>{kOomKillNames, true});
    field.optional("log_file", failure.log_file);
    field.optional("program", failure.program, kName);
    field.optional("role", failure.role, kName);
}

void visit_fields(Is<FailedRanks> auto& failed, auto& field) {
    field("ranks", failed.ranks, RankRuns{kMaxFailedRuns});
    field("status", failed.status);
    field.optional("oom", failed.oom, OneOf<OomKill>{kOomKillNames, true});
    field.optional("victims", failed.victims);
}

void visit_fields(Is<Verdict> auto& verdict, auto& field) {
    field("outcome", verdict.outcome, OneOf<Outcome>{kOutcomeNames});
    field("exit_code", verdict.exit_code, Range{0, 255});
    field("reason", verdict.reason);
    field("restarts", verdict.restarts);
    field.optional("culprit", verdict.culprit);
    field.optional("diagnosis", verdict.diagnosis);
    field.optional("names_message", verdict.names_message);
    field.optional("names_activity", verdict.names_activity);
    field.optional("hint", verdict.hint);
    field.optional("first_victim", verdict.first_victim);
    field.optional_each("also_failed", verdict.also_failed, kMaxFailedKinds);
}

void visit_fields(Is<RecordedGroup> auto& group, auto& field) {
    field("name", group.name, kName);
    field("rank", group.rank, kRankRange);
    field("size", group.size, Range{1, kMaxRank});
    field("members", group.members, RankRuns{flight_record::kRuns});
    field("live", group.live);
    field("queued", group.queued);
    field("started", group.started);
    field("done", group.done);
    field.optional("aborted_ago_ns", group.aborted_ago);
    if (group.aborted_ago) field("abort_reason", group.abort_reason, kName);
    field.optional("left_ago_ns", group.left_ago);
    if (group.left_ago) field("left_by_exception", group.left_by_exception);
}

/// Omits members that do not apply: a record has thousands of operations. `groups`: the length of FlightRecord::groups.
void visit_fields(Is<RecordedOperation> auto& operation, auto& field, std::size_t groups) {
    field("id", operation.id);
    field("group", operation.group, Range{-1, static_cast<std::int64_t>(groups) - 1});
    field("seq", operation.seq);
    field("op", operation.op, kName);
    field("queued_ago_ns", operation.queued_ago);
    field.optional("timeout_ms", operation.timeout, Range{0, UINT32_MAX});
    field.optional("p2p_seq", operation.p2p_seq);
    field.optional("reduce", operation.reduce, kName);
    field.optional("dtype", operation.dtype, kName);
    if (!operation.dtype.empty()) {
        field("count", operation.count);
        field("input_count", operation.input_count);
        field("output_count", operation.output_count);
    }
    field.optional("tag", operation.tag, kName);
    field.optional("peer", operation.peer, kRankRange, -1);
    field.optional("transfer_tag", operation.transfer_tag, Range{INT32_MIN, INT32_MAX});
    field.optional("fingerprint", operation.fingerprint, Hexadecimal{});
    field.optional("started_ago_ns", operation.started_ago);
    field.optional("ended_ago_ns", operation.ended_ago);
    field.optional("failed", operation.failed);
    field.optional("timed_out", operation.timed_out);
    field.optional("mismatch", operation.mismatch);
    field.optional("peer_failed", operation.peer_failed);
    field.optional("unreachable", operation.unreachable, kRankRange, -1);
    field.optional("waited_ago_ns", operation.waited_ago);
    field.optional("polled", operation.polled);
}

/// Counts every operation that has begun as waited for. Used for the record of an agent that does not report waits.
inline void take_begun_as_waited_for(FlightRecord& view) {
    for (RecordedOperation& operation : view.operations) {
        operation.waited_ago = operation.started_ago;
        operation.polled = operation.p2p_seq != 0;
    }
}

template <Is<FlightRecord> View>
void visit_fields(View& view, auto& field) {
    field("written", view.written);
    field("phase", view.phase, kName);
    field("phase_for_ns", view.phase_for);
    field("operations_in_all", view.operations_in_all);
    field.each("groups", view.groups, flight_record::kGroups);
    field.optional("more_unfinished", view.more_unfinished, Range{0, flight_record::kOperations});
    const bool reports_waits = field.mark("has_waits");
    field.each("operations", view.operations, flight_record::kOperations, view.groups.size());
    if constexpr (!std::is_const_v<View>) {
        if (!reports_waits) take_begun_as_waited_for(view);
    }
    field.optional("hidden_groups", view.hidden_groups, kRankRange);
    field.optional("device_call", view.device_call.name, kName);
    if (!view.device_call.name.empty()) {
        const std::int64_t last = static_cast<std::int64_t>(view.groups.size()) - 1;
        field("device_call_group", view.device_call.group, Range{-1, last});
        field("device_call_for_ns", view.device_call.time);
    }
}

void visit_fields(Is<RankRecord> auto& record, auto& field) {
    field("rank", record.rank, kRankRange);
    field("host", record.host, kName);
    field("pid", record.pid);
    field.optional("process", record.process, OneOf<ProcessState>{kProcessStateNames});
    field("ended", record.ended);
    field("wall_clock_ns", record.wall_clock_ns, Range{0, INT64_MAX});
    visit_fields(record.view, field);  // its members lie beside these
    field.optional("status", record.status);
    field.optional("ended_ago_ns", record.ended_ago);
    field.optional("process_before", record.process_before, OneOf<ProcessState>{kProcessStateNames});
    field.optional("process_before_ago_ns", record.process_before_ago);
    field.optional("stopped_for_ns", record.stopped_for);
}

// ---- agent → daemon ----

void visit_fields(Is<Launch> auto& launch, auto& field) {
    field("command", launch.command, kName);
    field("command_hash", launch.command_hash, Hexadecimal{});
    field("user", launch.user, kName);
    field("uid", launch.uid, Range{0, UINT32_MAX});
}

void visit_fields(Is<Program> auto& program, auto& field) {
    field("role", program.role, kName);
    field("slots", program.slots);
    field("max_restarts", program.max_restarts);
}

template <>
inline constexpr std::string_view kType<Join> = "join";
/// Visits all members of a Join of this protocol version. Of another version it visits only the version and the node,
/// because the other members may have changed.
void visit_fields(Is<Join> auto& join, auto& field) {
    field("protocol", join.protocol);
    field("node", join.node);
    if (join.protocol != kProtocolVersion) return;
    field("host", join.host);
    field("pid", join.pid);
    field.each("programs", join.programs, kMaxPrograms);
    field("min_nodes", join.min_nodes);
    field("max_nodes", join.max_nodes);
    field("scale_up", join.scale_up, OneOf<ScaleUp>{kScaleUpNames});
    field("stop_grace_ms", join.stop_grace, Range{0, kMaxMilliseconds});
    field("launch", join.launch);
    field.optional("spare", join.spare);
    field.optional("run_id", join.run_id);
    field.optional("node_rank", join.node_rank);
    field.optional("session", join.session);
    field.optional("records", join.records);
}

template <>
inline constexpr std::string_view kType<Heartbeat> = "heartbeat";
void visit_fields(Is<Heartbeat> auto& heartbeat, auto& field) {
    field("number", heartbeat.number);
    field("heard", heartbeat.heard);
}

template <>
inline constexpr std::string_view kType<WorkerFailed> = "worker_failed";
void visit_fields(Is<WorkerFailed> auto& message, auto& field) {
    field("generation", message.generation);
    field("failure", message.failure);
}

template <>
inline constexpr std::string_view kType<WorkerFinished> = "worker_finished";
void visit_fields(Is<WorkerFinished> auto& message, auto& field) {
    field("generation", message.generation);
    field("rank", message.rank);
}

template <>
inline constexpr std::string_view kType<GroupStopped> = "group_stopped";
void visit_fields(Is<GroupStopped> auto& message, auto& field) {
    field("generation", message.generation);
    field.optional("latest_step", message.latest_step);
}

template <>
inline constexpr std::string_view kType<GroupSucceeded> = "group_succeeded";
void visit_fields(Is<GroupSucceeded> auto& message, auto& field) {
    field("generation", message.generation);
    field.optional("preempted", message.preempted);
    field.optional("latest_step", message.latest_step);
}

template <>
inline constexpr std::string_view kType<Leave> = "leave";
void visit_fields(Is<Leave> auto& message, auto& field) { field("signal", message.signal, Range{1, 127}); }

template <>
inline constexpr std::string_view kType<Notify> = "notify";
void visit_fields(Is<Notify> auto& message, auto& field) {
    field("generation", message.generation);
    field("signal", message.signal, Range{1, 127});
    field.optional("number", message.number);
    field.optional("ago_ms", message.ago, Range{0, 3'600'000});
    field.optional("known", message.known);
}

template <>
inline constexpr std::string_view kType<PreemptionNotice> = "preemption_notice";
void visit_fields(Is<PreemptionNotice> auto& message, auto& field) {
    field("reason", message.reason);
    field.optional("by_signal", message.by_signal);
    field.optional("time_left_ms", message.time_left);
}

template <>
inline constexpr std::string_view kType<StepsTaken> = "steps_taken";
void visit_fields(Is<StepsTaken> auto& message, auto& field) {
    field("generation", message.generation);
    field("calls", message.calls);
}

template <>
inline constexpr std::string_view kType<Stalled> = "stalled";
void visit_fields(Is<Stalled> auto& message, auto& field) {
    field("generation", message.generation);
    field("rank", message.rank, kRankRange);
    field("group", message.group, kName);
    field("seq", message.seq);
    field("p2p_seq", message.p2p_seq);
    field("waited_ms", message.waited);
    field.optional("timed_out", message.timed_out);
    field.optional("unreachable", message.unreachable);
}

template <>
inline constexpr std::string_view kType<RecordReply> = "record_reply";
void visit_fields(Is<RecordReply> auto& message, auto& field) {
    field("generation", message.generation);
    field("request", message.request);
    field("last", message.last);
    field("record", message.record);
}

template <>
inline constexpr std::string_view kType<Inspect> = "inspect";
void visit_fields(Is<Inspect> auto& message, auto& field) {
    field("protocol", message.protocol);
    if (message.protocol != kProtocolVersion) return;
    field("operations", message.operations, Range{0, kMaxOperationsShown});
    field.optional("rank", message.rank, kRankRange);
}

inline constexpr std::array<std::pair<Order::Command, std::string_view>, 4> kOrderNames{
    {{Order::Command::kStatus, "status"},
     {Order::Command::kDrain, "drain"},
     {Order::Command::kUndrain, "undrain"},
     {Order::Command::kPreempt, "preempt"}}};

template <>
inline constexpr std::string_view kType<Order> = "order";
void visit_fields(Is<Order> auto& order, auto& field) {
    field("protocol", order.protocol);
    if (order.protocol != kProtocolVersion) return;
    field("command", order.command, OneOf<Order::Command>{kOrderNames});
    field.optional("node", order.node, kName);
    field.optional("time_left_ms", order.time_left);
}

// ---- daemon → agent ----

template <>
inline constexpr std::string_view kType<Welcome> = "welcome";
void visit_fields(Is<Welcome> auto& welcome, auto& field) {
    field("run_id", welcome.run_id);
    field("heartbeat_interval_ms", welcome.heartbeat_interval, Range{1, kMaxMilliseconds});
    field("lost_after_ms", welcome.lost_after, Range{1, kMaxMilliseconds});
    field("reconnect_grace_ms", welcome.reconnect_grace, Range{1, kMaxMilliseconds});
    field("hold_ms", welcome.hold, Range{1, kMaxMilliseconds});
    field.optional("node_name", welcome.node_name);
    field.optional("session", welcome.session);
    field.optional("records", welcome.records);
    field.optional("lost", welcome.lost);
    field.optional("worker_key", welcome.worker_key);
}

template <>
inline constexpr std::string_view kType<Waiting> = "waiting";
void visit_fields(Is<Waiting> auto& waiting, auto& field) {
    field("present", waiting.present);
    field("min_nodes", waiting.min_nodes);
    field("max_nodes", waiting.max_nodes);
    field("waited_ms", waiting.waited);
    field("reason", waiting.reason);
}

void visit_fields(Is<RoleRanks> auto& ranks, auto& field) {
    field("role_rank_base", ranks.base);
    field("role_world_size", ranks.world_size, Range{1, kMaxInt});
}

void visit_fields(Is<Restart> auto& restart, auto& field) {
    field("number", restart.number, Range{1, kMaxInt});
    field("max", restart.max, Range{1, kMaxInt});
    field.optional("role", restart.role, kName);
}

template <>
inline constexpr std::string_view kType<Assignment> = "assignment";
void visit_fields(Is<Assignment> auto& assignment, auto& field) {
    field("generation", assignment.generation);
    field("node_rank", assignment.node_rank);
    field("node_count", assignment.node_count, Range{1, kMaxInt});
    field("rank_base", assignment.rank_base);
    field("world_size", assignment.world_size, Range{1, kMaxInt});
    field.each("programs", assignment.program_roles, kMaxPrograms);
    field("master_addr", assignment.master_addr);
    field("master_port", assignment.master_port, Range{0, 65'535});
    field("restart_count", assignment.restart_count);
    field("max_restarts", assignment.max_restarts);
    field("reason", assignment.reason);
    field.optional("restart", assignment.restart);
    field.optional("steps_before", assignment.steps_before);
}

template <>
inline constexpr std::string_view kType<Abort> = "abort";
void visit_fields(Is<Abort> auto& message, auto& field) {
    field("generation", message.generation);
    field("reason", message.reason);
    field.optional("signal", message.signal, Range{0, 127});
    field.optional("failed", message.failed);
    field.optional("failing_for_ms", message.failing_for, Range{0, 3'600'000});
}

template <>
inline constexpr std::string_view kType<Preempt> = "preempt";
void visit_fields(Is<Preempt> auto& message, auto& field) {
    field("generation", message.generation);
    field("reason", message.reason);
    field.optional("by_signal", message.by_signal);
    field.optional("stop_at", message.stop_at);
    field.optional("time_left_ms", message.time_left);
}

template <>
inline constexpr std::string_view kType<Finished> = "finished";
void visit_fields(Is<Finished> auto& message, auto& field) { field("verdict", message.verdict); }

template <>
inline constexpr std::string_view kType<Rejected> = "rejected";
void visit_fields(Is<Rejected> auto& message, auto& field) {
    field("reason", message.reason);
    field.optional("try_again", message.try_again);
    field.optional("try_for_ms", message.try_for);
}

template <>
inline constexpr std::string_view kType<RequestRecords> = "request_records";
void visit_fields(Is<RequestRecords> auto& message, auto& field) {
    field("generation", message.generation);
    field("request", message.request);
    field("operations", message.operations, Range{0, kMaxOperationsShown});
    field.optional("rank", message.rank, kRankRange);
}

template <>
inline constexpr std::string_view kType<Notice> = "notice";
void visit_fields(Is<Notice> auto& message, auto& field) {
    field("generation", message.generation);
    field("text", message.text);
}

template <>
inline constexpr std::string_view kType<VouchRequest> = "vouch_request";
void visit_fields(Is<VouchRequest> auto& message, auto& field) {
    field("request", message.request);
    field("client_address", message.client_address, kName);
    field("client_port", message.client_port, Range{0, 65'535});
    field("store_address", message.store_address, kName);
    field("store_port", message.store_port, Range{0, 65'535});
}

template <>
inline constexpr std::string_view kType<Vouch> = "vouch";
void visit_fields(Is<Vouch> auto& message, auto& field) {
    field("request", message.request);
    field("own_user", message.own_user);
    field("owner", message.owner);
}

template <>
inline constexpr std::string_view kType<Inspected> = "inspected";
void visit_fields(Is<Inspected> auto& message, auto& field) {
    field("run_id", message.run_id, kName);
    field("generation", message.generation);
    field("world_size", message.world_size);
    field("silent", message.silent, Texts{Texts::Keep::kFirst, kName, 64});
    field("verdict", message.verdict);
}

template <>
inline constexpr std::string_view kType<Answer> = "answer";
void visit_fields(Is<Answer> auto& answer, auto& field) {
    field("refused", answer.refused);
    field("text", answer.text);
}

void visit_fields(Is<NodeStatus> auto& node, auto& field) {
    field("host", node.host, kName);
    field.optional("node_rank", node.node_rank);
    field("rank_base", node.rank_base);
    field("slots", node.slots);
    field("state", node.state);
    field.optional("fine", node.fine);
    field.optional("busy", node.busy);
}

void visit_fields(Is<Decision> auto& decision, auto& field) {
    field("ago_ms", decision.ago, Range{0, INT64_MAX});
    field("text", decision.text);
}

template <>
inline constexpr std::string_view kType<Status> = "status";
void visit_fields(Is<Status> auto& status, auto& field) {
    field("run_id", status.run_id, kName);
    field.optional("command", status.command, kName);
    field("generation", status.generation);
    field("state", status.state);
    field.each("nodes", status.nodes, kMaxNodes);
    field.each("decisions", status.decisions, kMaxDecisions);
}

}  // namespace ddprun::protocol
