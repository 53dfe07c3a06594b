#include "ctl/c10d_json.hpp"

#include <fmt/format.h>
#include <boost/json.hpp>

#include <algorithm>
#include <map>
#include <string_view>

namespace ddprun::ctl {
namespace {

namespace json = boost::json;
using namespace protocol;
using std::chrono::nanoseconds;

constexpr const char* kVersion = "2.10";
/// PyTorch's analysis accepts only names of libraries that it knows, and treats them alike in everything that matters
/// here.
constexpr const char* kLibrary = "nccl";
/// PyTorch's analysis uses this for groups without a description.
constexpr const char* kNoDescription = "undefined";
constexpr int kMaxMembers = 1 << 16;

/// Returns the name in c10d's ScalarType.
std::string c10d_type(const std::string& dtype) {
    static const std::map<std::string, std::string> names{
        {"bool", "Bool"}, {"i8", "Char"},       {"u8", "Byte"},   {"i16", "Short"},  {"u16", "UInt16"},
        {"i32", "Int"},   {"u32", "UInt32"},    {"i64", "Long"},  {"u64", "UInt64"}, {"f16", "Half"},
        {"f32", "Float"}, {"bf16", "BFloat16"}, {"f64", "Double"}};
    const auto found = names.find(dtype);
    return found == names.end() ? dtype : found->second;
}

/// Returns c10d's name: it ignores whether parts have equal sizes, and calls operations at the store barriers.
std::string c10d_name(const std::string& op) {
    if (op == "monitored_barrier" || op == "split" || op == "init_from_env") return "barrier";
    if (op == "gather_v") return "gather";
    if (op == "scatter_v") return "scatter";
    if (op == "all_to_all_v") return "all_to_all";
    return op;
}

std::string profiling_name(const RecordedOperation& operation, const RecordedGroup& group) {
    std::string name = fmt::format("{}:{}", kLibrary, c10d_name(operation.op));
    if (operation.op == "send") name += fmt::format(" {}->{}", group.rank, operation.peer);
    if (operation.op == "recv") name += fmt::format(" {}<-{}", group.rank, operation.peer);
    return name;
}

struct Sizes {
    std::uint64_t input = 1;
    std::uint64_t output = 1;
    std::string dtype = "Byte";
};

/// Returns the sizes as c10d would have recorded them: PyTorch's analysis compares them between ranks.
Sizes sizes_of(const RecordedOperation& operation) {
    if (operation.dtype.empty()) return {};  // a barrier: one element without a meaning
    Sizes sizes{operation.input_count, operation.output_count, c10d_type(operation.dtype)};
    if (operation.op == "reduce") sizes.output = sizes.input;  // only our root has an output; c10d reduces in place
    if (operation.op == "all_gather_v" || operation.op == "gather_v" || operation.op == "scatter_v")
        sizes.input = sizes.output = operation.count;
    return sizes;
}

json::array sizes(std::uint64_t count) {
    json::array result;
    result.push_back(json::array{count});
    return result;
}

const char* state_of(const RecordedOperation& operation) {
    if (operation.ended_ago && !operation.failed) return "completed";
    return operation.started_ago ? "started" : "scheduled";
}

json::object entry(const RecordedOperation& operation, const RecordedGroup& group, std::int64_t now) {
    const auto at = [&](const std::optional<nanoseconds>& ago) { return ago ? now - ago->count() : 0; };
    const bool completed = operation.ended_ago && !operation.failed;
    const Sizes size = sizes_of(operation);
    json::object result{{"record_id", operation.id},
                        {"pg_id", operation.group},
                        {"process_group", json::array{group.name, kNoDescription}},
                        {"collective_seq_id", operation.seq},
                        {"p2p_seq_id", operation.p2p_seq},
                        {"op_id", operation.id},
                        {"profiling_name", profiling_name(operation, group)},
                        {"time_created_ns", at(operation.queued_ago)},
                        {"input_sizes", sizes(size.input)},
                        {"input_dtypes", json::array{size.dtype}},
                        {"output_sizes", sizes(size.output)},
                        {"output_dtypes", json::array{size.dtype}},
                        {"state", state_of(operation)},
                        {"time_discovered_started_ns", at(operation.started_ago)},
                        {"time_discovered_completed_ns", completed ? at(operation.ended_ago) : 0},
                        {"retired", operation.ended_ago.has_value()},
                        {"timeout_ms", operation.timeout.count()},
                        {"is_p2p", operation.p2p_seq != 0},
                        {"frames", json::array()},
                        {"tag", operation.tag},
                        {"reduce_op", operation.reduce},
                        {"failed", operation.failed}};
    if (completed && operation.started_ago)
        result["duration_ms"] =
            std::chrono::duration<double, std::milli>(*operation.started_ago - *operation.ended_ago).count();
    return result;
}

/// Returns "[0, 1, 2]": c10d writes it as text.
std::string member_list(const RecordedGroup& group, int own_rank) {
    std::string list;
    int listed = 0;
    for (const RankRun& run : group.members) {
        for (int i = 0; i < run.count && listed < kMaxMembers; ++i, ++listed)
            list += fmt::format("{}{}", list.empty() ? "" : ", ", run.first + i * run.stride);
    }
    return fmt::format("[{}]", list.empty() ? std::to_string(own_rank) : list);
}

}  // namespace

std::string to_c10d_json(const RankRecord& record, const std::string& run_id) {
    json::object groups;
    json::object status;
    for (std::size_t i = 0; i < record.view.groups.size(); ++i) {
        const RecordedGroup& group = record.view.groups[i];
        groups[group.name] = json::object{
            {"name", group.name}, {"desc", kNoDescription}, {"ranks", member_list(group, number(record.rank))}};
        status[std::to_string(i)] = json::object{{"last_enqueued_collective", group.queued},
                                                 {"last_started_collective", group.started},
                                                 {"last_completed_collective", group.done}};
    }
    json::array entries;
    for (const RecordedOperation& operation : record.view.operations) {
        // Skips operations whose group is no longer recorded, and entries that c10d does not have.
        if (operation.group < 0 || is_arrival(operation)) continue;
        const RecordedGroup& group = record.view.groups[static_cast<std::size_t>(operation.group)];
        entries.push_back(entry(operation, group, record.wall_clock_ns));
    }
    const json::object dump{{"version", kVersion},
                            {"comm_lib_version", fmt::format("{}{}", kDumpLibrary, DDPRUN_VERSION)},
                            {"pg_config", std::move(groups)},
                            {"pg_status", std::move(status)},
                            {"entries", std::move(entries)},
                            {"rank", number(record.rank)},
                            {"host_name", record.host},
                            {"ddprun",
                             {{"run_id", run_id},
                              {"pid", record.pid},
                              {"process", describe_process(record)},
                              {"phase", record.view.phase},
                              {"has_record", record.view.written},
                              {"operations_in_all", record.view.operations_in_all}}}};
    return json::serialize(dump) + "\n";
}

}  // namespace ddprun::ctl
