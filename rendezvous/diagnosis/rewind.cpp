#include "rendezvous/diagnosis/rewind.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace ddprun::diagnosis {
namespace {

using std::chrono::nanoseconds;

/// The records are rewound to this long before the deadline: before any of its consequences, although the records are
/// not all read at one moment.
constexpr nanoseconds kBefore = std::chrono::milliseconds(100);

/// Limit of the operations that are diagnosed, each on a copy of all flight records: the daemon receives no heartbeats
/// meanwhile.
constexpr int kMaxDiagnosed = 4;

using Since = std::optional<nanoseconds>;

void rewind_by(Since& mark, nanoseconds by) {
    if (mark) mark = *mark > by ? Since(*mark - by) : std::nullopt;
}

void lower(std::uint64_t& number, std::uint64_t seq) {
    number = std::min(number, seq - std::min<std::uint64_t>(seq, 1));
}

/// Returns false if the operation had not been called then.
bool rewind_by(RecordedOperation& operation, RecordedGroup* group, nanoseconds by) {
    const bool was_called = operation.queued_ago > by;
    operation.queued_ago -= std::min(by, operation.queued_ago);
    rewind_by(operation.started_ago, by);
    rewind_by(operation.waited_ago, by);
    rewind_by(operation.ended_ago, by);
    if (!operation.ended_ago)
        operation.failed = operation.timed_out = operation.mismatch = operation.peer_failed = false;
    if (group != nullptr && was_called && !operation.ended_ago)
        group->live = true;  // it may have ended with the process
    if (group != nullptr && operation.p2p_seq == 0) {
        if (!was_called) lower(group->queued, operation.seq);
        if (!operation.started_ago) lower(group->started, operation.seq);
        if (!operation.ended_ago) lower(group->done, operation.seq);
    }
    return was_called;
}

/// ended_ago   of the process, up to which the time of its device call counts; 0: it runs
void rewind_by(FlightRecord& view, nanoseconds by, nanoseconds ended_ago) {
    std::vector<RecordedOperation> called;
    for (RecordedOperation& operation : view.operations) {
        const auto index = static_cast<std::size_t>(operation.group);
        RecordedGroup* const group = operation.group >= 0 && index < view.groups.size() ? &view.groups[index] : nullptr;
        if (rewind_by(operation, group, by)) called.push_back(std::move(operation));
    }
    view.operations = std::move(called);
    pass_waits_on(view);
    for (RecordedGroup& group : view.groups) {
        rewind_by(group.aborted_ago, by);
        if (!group.aborted_ago) group.abort_reason.clear();
    }
    if (view.phase_for > by)
        view.phase_for -= by;
    else
        view.phase.clear();  // it was another one
    const nanoseconds in_call = std::max(by - ended_ago, nanoseconds(0));
    if (view.device_call.time > in_call)
        view.device_call.time -= in_call;
    else
        view.device_call = {};
}

/// Returns the index of the newest group of that name; -1: there is none.
int newest_group(const FlightRecord& view, const std::string& name) {
    const auto found = std::ranges::find(view.groups.rbegin(), view.groups.rend(), name, &RecordedGroup::name);
    return static_cast<int>(view.groups.rend() - found) - 1;
}

/// Returns whether members had failed in that collective before `own` called it. Then it failed because of that, and
/// they are not culprits, whatever they do now.
bool had_failed(const std::vector<RankRecord>& records, const FlightRecord& own, const RecordedOperation& operation) {
    const auto index = static_cast<std::size_t>(operation.group);
    if (operation.p2p_seq != 0 || operation.group < 0 || index >= own.groups.size()) return false;
    return std::ranges::any_of(records, [&](const RankRecord& record) {
        const int group = newest_group(record.view, own.groups[index].name);
        return std::ranges::any_of(record.view.operations, [&](const RecordedOperation& theirs) {
            return group >= 0 && theirs.group == group && theirs.p2p_seq == 0 && theirs.seq == operation.seq &&
                   theirs.failed && theirs.ended_ago && *theirs.ended_ago > operation.queued_ago;
        });
    });
}

struct Timeout {
    std::size_t record = 0;     ///< its place in the list
    std::size_t operation = 0;  ///< the same, in that flight record
    nanoseconds ended_ago{0};
    nanoseconds lasted{0};
};

/// Returns the operations that failed by their deadline, the oldest first.
std::vector<Timeout> timeouts(const std::vector<RankRecord>& records) {
    std::vector<Timeout> found;
    for (std::size_t record = 0; record < records.size(); ++record) {
        const std::vector<RecordedOperation>& operations = records[record].view.operations;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            const RecordedOperation& operation = operations[i];
            if (!operation.timed_out || !operation.ended_ago) continue;
            const nanoseconds began = operation.started_ago.value_or(operation.queued_ago);
            if (began > *operation.ended_ago)
                found.push_back({record, i, *operation.ended_ago, began - *operation.ended_ago});
        }
    }
    std::ranges::stable_sort(found, std::greater(), &Timeout::ended_ago);
    return found;
}

/// Identifies an operation: group, numbers, and for a send or receive the rank, because each rank counts its own.
using OperationKey = std::tuple<std::string_view, std::uint64_t, std::uint64_t, int>;

OperationKey key_of(const RankRecord& record, const RecordedOperation& operation) {
    const auto index = static_cast<std::size_t>(operation.group);
    const bool known = operation.group >= 0 && index < record.view.groups.size();
    const std::string_view group = known ? std::string_view(record.view.groups[index].name) : std::string_view();
    return {group, operation.seq, operation.p2p_seq, operation.p2p_seq != 0 ? number(record.rank) : -1};
}

/// Failures: remembers which groups have failed and how long ago. Used by diagnose_timeout().
class Failures {
public:
    /// Returns whether the operation ended because its group had failed, with every operation that was in progress
    /// there. Must be called in the order in which the operations ended.
    bool explain(std::string_view group, const RecordedOperation& operation) {
        const nanoseconds ended_ago = *operation.ended_ago;
        const auto [known, is_first] = failed_ago_.try_emplace(group, ended_ago);
        if (is_first) return false;
        if (operation.queued_ago > known->second && known->second - ended_ago <= kTogether) return true;
        known->second = ended_ago;
        return false;
    }

private:
    std::map<std::string_view, nanoseconds> failed_ago_;
};

StallVerdict diagnose_one(std::vector<RankRecord> records, const Timeout& timeout) {
    // Marks it as waited for, even if its rank did not wait: the failure alone is worth a diagnosis.
    RecordedOperation& operation = records[timeout.record].view.operations[timeout.operation];
    operation.waited_ago = timeout.ended_ago + timeout.lasted;
    operation.polled = false;
    const nanoseconds before = std::min(kBefore, timeout.lasted / 4);
    return diagnose(rewind(std::move(records), timeout.ended_ago + before), timeout.lasted / 2);
}

}  // namespace

std::vector<RankRecord> rewind(std::vector<RankRecord> records, nanoseconds by) {
    for (RankRecord& record : records) {
        const nanoseconds ended_ago = record.ended ? record.ended_ago.value_or(nanoseconds(0)) : nanoseconds(0);
        if (record.ended && ended_ago <= by) {
            record.ended = false;
            record.ended_ago.reset();
            record.status.reset();
            record.process = ProcessState::kRunning;
        }
        const bool ended_since = record.process_before_ago.value_or(nanoseconds(0)) <= by;
        if (!record.ended && record.process_before && ended_since) record.process = record.process_before;
        rewind_by(record.view, by, ended_ago);
    }
    return records;
}

/// The first new verdict counts, because later failures come from it.
StallVerdict diagnose_timeout(const std::vector<RankRecord>& records, nanoseconds recent, const IsNews& is_news) {
    Failures failures;
    std::set<OperationKey> diagnosed;  // the deadline of a late peer in the same operation is the same one
    for (const Timeout& timeout : timeouts(records)) {
        const RankRecord& record = records[timeout.record];
        const RecordedOperation& operation = record.view.operations[timeout.operation];
        const OperationKey about = key_of(record, operation);
        const bool explained = failures.explain(std::get<0>(about), operation);
        if (explained || timeout.ended_ago > std::min<nanoseconds>(recent, kRecentTimeout)) continue;
        if (diagnosed.size() == kMaxDiagnosed) break;
        if (!diagnosed.insert(about).second || had_failed(records, record.view, operation)) continue;
        StallVerdict verdict = diagnose_one(records, timeout);
        if (verdict.kind != StallKind::kNone && (!is_news || is_news(verdict))) return verdict;
    }
    return {};
}

}  // namespace ddprun::diagnosis
