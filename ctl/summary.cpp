#include "ctl/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/text/escape.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "rendezvous/diagnosis/stall.hpp"

namespace ddprun::ctl {
namespace {

using namespace protocol;
using namespace diagnosis;
using std::chrono::nanoseconds;

constexpr std::size_t kMaxLines = 64;

/// The state of a rank, by which ranks are grouped, and how long it has lasted.
struct Activity {
    std::string what;
    std::string more;
    nanoseconds since{0};
    bool timed = false;
};

Activity activity_of(const RankRecord& record) {
    Activity result;
    const FlightRecord& view = record.view;
    if (!view.written) {
        result.what = "no flight record: its program does not use ddp::ddp, or has not initialised it yet";
    } else if (const RecordedOperation* current = current_operation(view)) {
        result.what = "in " + describe(*current);
        if (current->group >= 0)
            result.what += fmt::format(" of '{}'", view.groups[static_cast<std::size_t>(current->group)].name);
        result.since = *waits_for(*current, false);
        result.timed = true;
    } else {
        result.what = "in no operation";
        std::string last;
        for (const RecordedOperation& operation : view.operations) {
            if (!operation.ended_ago || !operation.started_ago || is_arrival(operation)) continue;
            result.since = *operation.ended_ago;
            result.timed = true;
            last = fmt::format("; the last, {}, {}", describe(operation), operation.failed ? "failed" : "is done");
        }
        result.what += last;
        if (const RecordedOperation* other = under_way(view)) result.more = "; under way is " + describe(*other);
    }
    if (view.hidden_groups > 0)
        result.more += fmt::format("; {} groups do not fit in its flight record: its operations in them are unknown",
                                   view.hidden_groups);
    if (!view.phase.empty()) result.more += fmt::format("; phase '{}'", view.phase);
    if (record.process != ProcessState::kRunning) result.more += fmt::format("; process {}", describe_process(record));
    return result;
}

/// Adds the call in which the rank's NCCL thread is, if that takes long: a line of its own, since its time differs.
void add_device_call(std::vector<Activity>& to, const FlightRecord& view) {
    const std::string call = describe_device_call(view);
    if (call.empty()) return;
    to.push_back({.what = "its NCCL thread is in " + call, .more = "", .since = view.device_call.time, .timed = true});
}

struct Line {
    std::vector<int> ranks;
    std::set<std::string> hosts;
    nanoseconds shortest = nanoseconds::max();
    nanoseconds longest{0};
    bool timed = false;
};

std::string duration(const Line& line) {
    if (!line.timed) return "";
    const std::string min = duration_text(line.shortest);
    const std::string max = duration_text(line.longest);
    return min == max ? fmt::format(", for {}", max) : fmt::format(", for {} to {}", min, max);
}

}  // namespace

std::string summarize(const std::vector<RankRecord>& records, const Inspected& end, const std::string& command) {
    std::map<std::string, Line> lines;
    std::set<std::string> hosts;
    for (const RankRecord& record : records) {
        std::vector<Activity> activities{activity_of(record)};
        add_device_call(activities, record.view);
        for (const Activity& what : activities) {
            Line& line = lines[what.what + what.more];
            line.ranks.push_back(number(record.rank));
            line.hosts.insert(record.host);
            line.timed = what.timed;
            line.shortest = std::min(line.shortest, what.since);
            line.longest = std::max(line.longest, what.since);
        }
        hosts.insert(record.host);
    }
    std::string text = fmt::format("job '{}'{}, generation {}: {} on {}\n", end.run_id,
                                   command.empty() ? "" : fmt::format(" ({})", command), number(end.generation),
                                   counted(end.world_size, "rank"), counted(hosts.size(), "node"));
    if (end.world_size == 0) return escape_controls(fmt::format("job '{}': {}", end.run_id, end.verdict)) + "\n";

    std::vector<std::pair<std::string, Line>> ordered(lines.begin(), lines.end());
    std::ranges::stable_sort(ordered, std::greater(), [](const auto& entry) { return entry.second.ranks.size(); });
    for (std::size_t i = 0; i < std::min(ordered.size(), kMaxLines); ++i) {
        const auto& [what, line] = ordered[i];
        const std::string where = line.hosts.size() == 1 ? fmt::format(" ({})", *line.hosts.begin()) : "";
        text +=
            escape_controls(fmt::format("  {}{}: {}{}", name_rank_ranges(line.ranks), where, what, duration(line))) +
            "\n";
    }
    if (ordered.size() > kMaxLines) text += fmt::format("  and {} more lines\n", ordered.size() - kMaxLines);
    for (const std::string& host : end.silent)
        text += escape_controls(fmt::format("  {} did not answer", name_node(host))) + "\n";
    return text + escape_controls(end.verdict) + "\n";
}

}  // namespace ddprun::ctl
