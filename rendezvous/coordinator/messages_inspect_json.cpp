#include "rendezvous/coordinator/messages_inspect_json.hpp"

#include <algorithm>
#include <charconv>

#include "common/board_layout.hpp"
#include "rendezvous/coordinator/utf8.hpp"

namespace ddprun::coordinator {
namespace {

namespace json = boost::json;
using std::chrono::nanoseconds;

constexpr std::int64_t kMaxNumber = std::int64_t{1} << 53;
/// Of nanoseconds: 36 years, and some of them can be added.
constexpr std::int64_t kMaxDuration = std::int64_t{1} << 60;
constexpr std::int64_t kMaxWait = kMaxDuration / 1'000'000;
constexpr std::int64_t kMaxRank = 1 << 27;
constexpr std::size_t kMaxText = 1'024;  // of a name on a board; all of it together must fit into one message
constexpr std::size_t kMaxSilentHosts = 64;

json::string text(std::string_view value) { return json::string(clean_text(value, kMaxText)); }

json::string long_text(std::string_view value) { return json::string(clean_text(value, kMaxTextBytes)); }

std::int64_t signed_number(std::uint64_t value) {
    return static_cast<std::int64_t>(std::min<std::uint64_t>(value, kMaxNumber));
}

std::int64_t count(nanoseconds duration) { return std::min<std::int64_t>(duration.count(), kMaxDuration); }

json::object fields(const BoardGroup& group) {
    json::array members;
    for (const RankRun& run : group.members) members.push_back(json::array{run.first, run.count, run.stride});
    json::object result{{"name", text(group.name)},
                        {"rank", group.rank},
                        {"size", group.size},
                        {"members", std::move(members)},
                        {"live", group.live},
                        {"queued", signed_number(group.queued)},
                        {"started", signed_number(group.started)},
                        {"done", signed_number(group.done)}};
    if (group.aborted_ago) {
        result["aborted_ago_ns"] = count(*group.aborted_ago);
        result["abort_reason"] = text(group.abort_reason);
    }
    if (group.left_ago) {
        result["left_ago_ns"] = count(*group.left_ago);
        result["left_by_exception"] = group.left_by_exception;
    }
    return result;
}

/// What does not apply is left out: thousands of these travel at once.
json::object fields(const BoardOperation& operation) {
    json::object result{{"id", signed_number(operation.id)},
                        {"group", operation.group},
                        {"seq", signed_number(operation.seq)},
                        {"op", text(operation.op)},
                        {"queued_ago_ns", count(operation.queued_ago)}};
    if (operation.timeout.count() > 0) result["timeout_ms"] = operation.timeout.count();
    if (operation.p2p_seq != 0) result["p2p_seq"] = signed_number(operation.p2p_seq);
    if (!operation.reduce.empty()) result["reduce"] = text(operation.reduce);
    if (!operation.dtype.empty()) {
        result["dtype"] = text(operation.dtype);
        result["count"] = signed_number(operation.count);
        result["input_count"] = signed_number(operation.input_count);
        result["output_count"] = signed_number(operation.output_count);
    }
    if (!operation.tag.empty()) result["tag"] = text(operation.tag);
    if (operation.peer >= 0) result["peer"] = operation.peer;
    if (operation.transfer_tag != 0) result["transfer_tag"] = operation.transfer_tag;
    if (operation.fingerprint != 0) result["fingerprint"] = text(fmt::format("{:016x}", operation.fingerprint));
    if (operation.started_ago) result["started_ago_ns"] = count(*operation.started_ago);
    if (operation.ended_ago) result["ended_ago_ns"] = count(*operation.ended_ago);
    if (operation.failed) result["failed"] = true;
    if (operation.timed_out) result["timed_out"] = true;
    if (operation.mismatch) result["mismatch"] = true;
    if (operation.waited_ago) result["waited_ago_ns"] = count(*operation.waited_ago);
    if (operation.polled) result["polled"] = true;
    return result;
}

json::object fields(const RankBoard& board) {
    json::array groups;
    for (const BoardGroup& group : board.view.groups) groups.push_back(fields(group));
    json::array operations;
    for (const BoardOperation& operation : board.view.operations) operations.push_back(fields(operation));
    json::object result{{"rank", number(board.rank)},
                        {"host", text(board.host)},
                        {"pid", board.pid},
                        {"process", text(board.process)},
                        {"ended", board.ended},
                        {"wall_clock_ns", board.wall_clock_ns},
                        {"written", board.view.written},
                        {"phase", text(board.view.phase)},
                        {"phase_for_ns", count(board.view.phase_for)},
                        {"operations_in_all", signed_number(board.view.operations_in_all)},
                        {"groups", std::move(groups)},
                        {"more_in_hand", board.view.more_in_hand},
                        {"says_who_waits", true},
                        {"operations", std::move(operations)}};
    if (board.view.hidden_groups > 0) result["hidden_groups"] = board.view.hidden_groups;
    if (board.ended_ago) result["ended_ago_ns"] = count(*board.ended_ago);
    if (!board.process_before.empty()) result["process_before"] = text(board.process_before);
    if (board.process_before_ago) result["process_before_ago_ns"] = count(*board.process_before_ago);
    if (board.stopped_for) result["stopped_for_ns"] = count(*board.stopped_for);
    return result;
}

std::uint64_t natural(Fields& in, std::string_view key) {
    return static_cast<std::uint64_t>(in.integer(key, 0, kMaxNumber));
}

nanoseconds duration(Fields& in, std::string_view key) { return nanoseconds(in.integer(key, 0, kMaxDuration)); }

BoardGroup read_group(Fields in) {
    BoardGroup group;
    group.name = in.text("name");
    group.rank = in.small("rank", 0, kMaxRank);
    group.size = in.small("size", 1, kMaxRank);
    for (const auto& run : in.triples("members", board::kRuns)) {
        // Only runs of ranks that there can be: whoever reads them multiplies.
        const std::int64_t last = run[0] + (run[1] - 1) * run[2];
        const bool sound =
            run[0] >= 0 && run[0] <= kMaxRank && run[1] > 0 && run[1] <= kMaxRank && last >= 0 && last <= kMaxRank;
        if (!sound) in.fail_at("members", "has a run beyond all ranks");
        if (sound)
            group.members.push_back({static_cast<int>(run[0]), static_cast<int>(run[1]), static_cast<int>(run[2])});
    }
    group.live = in.boolean("live");
    group.queued = natural(in, "queued");
    group.started = natural(in, "started");
    group.done = natural(in, "done");
    if (in.has("aborted_ago_ns")) {
        group.aborted_ago = duration(in, "aborted_ago_ns");
        group.abort_reason = in.text("abort_reason");
    }
    if (in.has("left_ago_ns")) {
        group.left_ago = duration(in, "left_ago_ns");
        group.left_by_exception = in.boolean("left_by_exception");
    }
    return group;
}

BoardOperation read_operation(Fields in, std::size_t groups) {
    BoardOperation operation;
    operation.id = natural(in, "id");
    operation.group = in.small("group", -1, static_cast<std::int64_t>(groups) - 1);
    operation.seq = natural(in, "seq");
    operation.op = in.text("op");
    operation.queued_ago = duration(in, "queued_ago_ns");
    if (in.has("timeout_ms")) operation.timeout = std::chrono::milliseconds(in.integer("timeout_ms", 0, UINT32_MAX));
    if (in.has("p2p_seq")) operation.p2p_seq = natural(in, "p2p_seq");
    if (in.has("reduce")) operation.reduce = in.text("reduce");
    if (in.has("dtype")) {
        operation.dtype = in.text("dtype");
        operation.count = natural(in, "count");
        operation.input_count = natural(in, "input_count");
        operation.output_count = natural(in, "output_count");
    }
    if (in.has("tag")) operation.tag = in.text("tag");
    if (in.has("peer")) operation.peer = in.small("peer", 0, kMaxRank);
    if (in.has("transfer_tag")) operation.transfer_tag = in.integer("transfer_tag", INT32_MIN, INT32_MAX);
    if (in.has("fingerprint")) {
        const std::string hex = in.text("fingerprint");
        const char* end = hex.data() + hex.size();
        const auto parsed = std::from_chars(hex.data(), end, operation.fingerprint, 16);
        if (parsed.ec != std::errc() || parsed.ptr != end) in.fail_at("fingerprint", "must be a hexadecimal number");
    }
    if (in.has("started_ago_ns")) operation.started_ago = duration(in, "started_ago_ns");
    if (in.has("ended_ago_ns")) operation.ended_ago = duration(in, "ended_ago_ns");
    operation.failed = in.has("failed") && in.boolean("failed");
    operation.timed_out = in.has("timed_out") && in.boolean("timed_out");
    operation.mismatch = in.has("mismatch") && in.boolean("mismatch");
    if (in.has("waited_ago_ns")) operation.waited_ago = duration(in, "waited_ago_ns");
    operation.polled = in.has("polled") && in.boolean("polled");
    return operation;
}

/// Of an agent that does not say it: whoever has begun something may wait for it.
void take_for_waited(BoardView& view) {
    for (BoardOperation& operation : view.operations) {
        operation.waited_ago = operation.started_ago;
        operation.polled = operation.p2p_seq != 0;
    }
}

RankBoard read_board(Fields in) {
    RankBoard board;
    board.rank = Rank{in.small("rank", 0, kMaxRank)};
    board.host = in.text("host");
    board.pid = in.small("pid", 0);
    board.process = in.text("process");
    board.ended = in.boolean("ended");
    if (in.has("ended_ago_ns")) board.ended_ago = duration(in, "ended_ago_ns");
    if (in.has("process_before")) board.process_before = in.text("process_before");
    if (in.has("process_before_ago_ns")) board.process_before_ago = duration(in, "process_before_ago_ns");
    if (in.has("stopped_for_ns")) board.stopped_for = duration(in, "stopped_for_ns");
    board.wall_clock_ns = in.integer("wall_clock_ns", 0, INT64_MAX);
    board.view.written = in.boolean("written");
    board.view.phase = in.text("phase");
    board.view.phase_for = duration(in, "phase_for_ns");
    board.view.operations_in_all = natural(in, "operations_in_all");
    if (in.has("hidden_groups")) board.view.hidden_groups = in.small("hidden_groups", 0, kMaxRank);
    if (in.has("more_in_hand")) board.view.more_in_hand = in.small("more_in_hand", 0, board::kOperations);
    in.each("groups", board::kGroups, [&](Fields group) { board.view.groups.push_back(read_group(std::move(group))); });
    const std::size_t groups = board.view.groups.size();
    in.each("operations", board::kOperations,
            [&](Fields operation) { board.view.operations.push_back(read_operation(std::move(operation), groups)); });
    if (!in.has("says_who_waits")) take_for_waited(board.view);
    return board;
}

Generation generation(Fields& in) { return Generation{in.integer("generation", 0, kMaxGeneration)}; }

int operations(Fields& in) { return in.small("operations", 0, kMaxOperationsShown); }

}  // namespace

json::object fields(const Stalled& m) {
    json::object result{{"type", "stalled"},
                        {"generation", number(m.generation)},
                        {"rank", number(m.rank)},
                        {"group", text(m.group)},
                        {"seq", signed_number(m.seq)},
                        {"p2p_seq", signed_number(m.p2p_seq)},
                        {"waited_ms", m.waited.count()}};
    if (m.timed_out) result["timed_out"] = true;
    return result;
}

json::object fields(const ShowBoards& m) {
    json::object result{{"type", "show_boards"},
                        {"generation", number(m.generation)},
                        {"request", signed_number(m.request)},
                        {"operations", m.operations}};
    if (m.rank) result["rank"] = number(*m.rank);
    return result;
}

json::object fields(const ShownBoard& m) {
    return {{"type", "shown_board"},
            {"generation", number(m.generation)},
            {"request", signed_number(m.request)},
            {"last", m.last},
            {"board", fields(m.board)}};
}

json::object fields(const Notice& m) {
    return {{"type", "notice"}, {"generation", number(m.generation)}, {"text", long_text(m.text)}};
}

json::object fields(const Inspect& m) {
    json::object result{{"type", "inspect"}, {"protocol", m.protocol}, {"operations", m.operations}};
    if (m.rank) result["rank"] = number(*m.rank);
    return result;
}

json::object fields(const Inspected& m) {
    json::array silent;
    for (const std::string& host : m.silent) {
        if (silent.size() < kMaxSilentHosts) silent.push_back(text(host));
    }
    return {{"type", "inspected"},        {"run_id", text(m.run_id)},    {"generation", number(m.generation)},
            {"world_size", m.world_size}, {"silent", std::move(silent)}, {"verdict", long_text(m.verdict)}};
}

Stalled read_stalled(Fields& in) {
    Stalled message;
    message.generation = generation(in);
    message.rank = Rank{in.small("rank", 0, kMaxRank)};
    message.group = in.text("group");
    message.seq = natural(in, "seq");
    message.p2p_seq = natural(in, "p2p_seq");
    message.waited = std::chrono::milliseconds(in.integer("waited_ms", 0, kMaxWait));
    message.timed_out = in.has("timed_out") && in.boolean("timed_out");
    return message;
}

ShowBoards read_show_boards(Fields& in) {
    ShowBoards message;
    message.generation = generation(in);
    message.request = natural(in, "request");
    if (in.has("rank")) message.rank = Rank{in.small("rank", 0, kMaxRank)};
    message.operations = operations(in);
    return message;
}

ShownBoard read_shown_board(Fields& in) {
    ShownBoard message;
    message.generation = generation(in);
    message.request = natural(in, "request");
    message.last = in.boolean("last");
    message.board = read_board(in.object("board"));
    return message;
}

Notice read_notice(Fields& in) {
    Notice message;
    message.generation = generation(in);
    message.text = in.text("text");
    return message;
}

Inspect read_inspect(Fields& in) {
    Inspect message;
    message.protocol = in.small("protocol", 0);
    if (message.protocol != kProtocolVersion) return message;
    if (in.has("rank")) message.rank = Rank{in.small("rank", 0, kMaxRank)};
    message.operations = operations(in);
    return message;
}

Inspected read_inspected(Fields& in) {
    Inspected message;
    message.run_id = in.text("run_id");
    message.generation = generation(in);
    message.world_size = in.small("world_size", 0);
    message.silent = in.list("silent");
    message.verdict = in.text("verdict");
    return message;
}

}  // namespace ddprun::coordinator
