#include "rendezvous/protocol/flight_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <utility>

#include "common/text/number.hpp"

namespace ddprun::protocol {

namespace {

/// Returns " sum f32[6572160] root 0".
std::string describe_arguments(const RecordedOperation& operation) {
    std::string text;
    if (!operation.reduce.empty()) text += fmt::format(" {}", operation.reduce);
    if (!operation.dtype.empty()) text += fmt::format(" {}[{}]", operation.dtype, operation.count);
    if (operation.peer >= 0) text += fmt::format(" {} {}", operation.p2p_seq == 0 ? "root" : "peer", operation.peer);
    return text;
}

}  // namespace

std::string describe_call(const RecordedOperation& operation) { return operation.op + describe_arguments(operation); }

std::string describe(const RecordedOperation& operation) {
    std::string text = operation.p2p_seq == 0 ? fmt::format("#{} {}", operation.seq, operation.op)
                                              : fmt::format("{} #{}", operation.op, operation.p2p_seq);
    text += describe_arguments(operation);
    if (operation.p2p_seq != 0) text += fmt::format(" tag {}", operation.transfer_tag);
    if (!operation.tag.empty()) text += fmt::format(" '{}'", operation.tag);
    return text;
}

namespace {

const RecordedOperation* oldest_begun(const FlightRecord& view, bool waited_for) {
    const RecordedOperation* oldest = nullptr;
    for (const RecordedOperation& operation : view.operations) {
        if (!operation.started_ago || operation.ended_ago || operation.waited_ago.has_value() != waited_for) continue;
        if (is_arrival(operation)) continue;
        const auto key = [](const RecordedOperation& o) { return std::pair(o.p2p_seq == 0, *o.started_ago); };
        if (oldest == nullptr || key(operation) > key(*oldest)) oldest = &operation;
    }
    return oldest;
}

}  // namespace

const RecordedOperation* current_operation(const FlightRecord& view) { return oldest_begun(view, true); }

const RecordedOperation* under_way(const FlightRecord& view) { return oldest_begun(view, false); }

namespace {

std::string of_group(const FlightRecord& view, int group) {
    const auto index = static_cast<std::size_t>(group);
    const bool known = group >= 0 && index < view.groups.size();
    return known ? fmt::format(" of group '{}'", view.groups[index].name) : "";
}

}  // namespace

std::string describe(const FlightRecord& view, const RecordedOperation& operation) {
    return describe(operation) + of_group(view, operation.group);
}

void end_device_call(FlightRecord& view, std::chrono::nanoseconds ended_ago) {
    view.device_call.time -= ended_ago;
    if (view.device_call.time < kLongDeviceCall) view.device_call = {};
}

std::string describe_device_call(const FlightRecord& view) {
    if (view.device_call.name.empty()) return "";
    return view.device_call.name + of_group(view, view.device_call.group);
}

namespace {

/// Returns whether the end of the operation is informative about the worker: it has begun, and is not a successful
/// init.
bool has_meaningful_end(const RecordedOperation& operation) {
    if (is_arrival(operation) || (is_init(operation) && !operation.failed)) return false;
    return operation.started_ago && operation.ended_ago;
}

constexpr std::string_view kIn = "in ";
constexpr std::string_view kUnderWay = " under way for ";

/// A small operation's times are those of the kernel's last tick, at most this long ago.
constexpr std::chrono::milliseconds kTick{10};

/// Returns the operation that ended last. Ticks may make an earlier large operation seem to end after a small one, so
/// the later collective of a group counts, and the later call of two groups within a tick: it most likely ended later.
const RecordedOperation* last_ended(const FlightRecord& view) {
    const RecordedOperation* last = nullptr;
    for (const RecordedOperation& operation : view.operations) {
        if (!has_meaningful_end(operation)) continue;
        if (last == nullptr || *operation.ended_ago <= *last->ended_ago) last = &operation;
    }
    if (last == nullptr || last->failed || last->p2p_seq != 0 || last->group < 0) return last;
    const std::chrono::nanoseconds newest = *last->ended_ago;
    for (const RecordedOperation& operation : view.operations) {
        if (!has_meaningful_end(operation) || operation.failed || operation.p2p_seq != 0) continue;
        const bool same_tick = *operation.ended_ago - newest <= kTick && operation.id > last->id;
        if (operation.group == last->group ? operation.seq > last->seq : same_tick) last = &operation;
    }
    return last;
}

}  // namespace

std::string describe_activity(const FlightRecord& view) {
    if (!view.written) return "";
    std::string text;
    if (const RecordedOperation* current = current_operation(view)) {
        text = fmt::format("{}{} for {}", kIn, describe(view, *current), duration_text(*waits_for(*current, false)));
    } else if (const RecordedOperation* last = last_ended(view)) {
        text = fmt::format("{} {}, {} before", last->failed ? "failed in" : "had finished", describe(view, *last),
                           duration_text(*last->ended_ago));
    } else {
        text = "had done no collective";
    }
    if (const RecordedOperation* other = current_operation(view) == nullptr ? under_way(view) : nullptr) {
        text += fmt::format(", with {}{}{}", describe(view, *other), kUnderWay, duration_text(*other->started_ago));
    }
    if (const std::string call = describe_device_call(view); !call.empty())
        text += fmt::format("; its NCCL thread was in {} for {}", call, duration_text(view.device_call.time));
    if (!view.phase.empty()) text += fmt::format("; in phase '{}'", view.phase);
    return text;
}

bool has_operation_under_way(std::string_view activity) {
    return activity.starts_with(kIn) || activity.find(kUnderWay) != activity.npos;
}

bool failed_after_peer(const FlightRecord& view) {
    std::optional<std::chrono::nanoseconds> latest;  // such a failure
    for (const RecordedOperation& operation : view.operations) {
        if (!operation.peer_failed || !operation.ended_ago || is_arrival(operation)) continue;
        latest = std::min(latest.value_or(*operation.ended_ago), *operation.ended_ago);
    }
    return latest && std::ranges::none_of(view.operations, [&](const RecordedOperation& operation) {
               const bool succeeded = operation.ended_ago && !operation.failed && !is_arrival(operation);
               return succeeded && operation.queued_ago < *latest;
           });
}

void pass_waits_on(FlightRecord& view) {
    struct Wait {
        bool blocks = false;
        std::chrono::nanoseconds time{0};
        auto operator<=>(const Wait&) const = default;
    };
    std::map<int, Wait> by_group;  ///< of the later operations
    for (auto operation = view.operations.rbegin(); operation != view.operations.rend(); ++operation) {
        if (operation->p2p_seq != 0 || operation->ended_ago || operation->group < 0) continue;
        auto [known, is_new] = by_group.try_emplace(operation->group);
        Wait& wait = known->second;
        if (operation->waited_ago) {
            const Wait own{!operation->polled, *operation->waited_ago};
            wait = is_new ? own : std::max(wait, own);
        } else if (is_new) {
            by_group.erase(known);
            continue;
        }
        operation->waited_ago = wait.time;
        operation->polled = !wait.blocks;
    }
}

bool is_going_on(const FlightRecord& view, std::chrono::nanoseconds time) {
    return std::ranges::any_of(view.operations,
                               [&](const RecordedOperation& o) { return o.queued_ago < time && !is_arrival(o); });
}

std::optional<std::chrono::nanoseconds> waits_for(const RecordedOperation& operation, bool going_on) {
    if (operation.ended_ago || !operation.waited_ago || (operation.polled && going_on)) return std::nullopt;
    return std::min(*operation.waited_ago, operation.started_ago.value_or(std::chrono::nanoseconds(0)));
}

}  // namespace ddprun::protocol
