#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rendezvous/coordinator/messages_board.hpp"

namespace ddprun::coordinator {

std::string how_long(std::chrono::nanoseconds duration) {
    const double seconds = std::chrono::duration<double>(duration).count();
    if (seconds < 0.1) return fmt::format("{:.0f} ms", seconds * 1000);
    if (seconds < 600) return fmt::format("{:.1f} s", seconds);
    return fmt::format("{:.0f} min", seconds / 60);
}

std::string describe(const BoardOperation& operation) {
    std::string text = operation.p2p_seq == 0 ? fmt::format("#{} {}", operation.seq, operation.op)
                                              : fmt::format("{} #{}", operation.op, operation.p2p_seq);
    if (!operation.reduce.empty()) text += fmt::format(" {}", operation.reduce);
    if (!operation.dtype.empty()) text += fmt::format(" {}[{}]", operation.dtype, operation.count);
    if (operation.peer >= 0) text += fmt::format(" {} {}", operation.p2p_seq == 0 ? "root" : "peer", operation.peer);
    if (operation.p2p_seq != 0) text += fmt::format(" tag {}", operation.transfer_tag);
    if (!operation.tag.empty()) text += fmt::format(" '{}'", operation.tag);
    return text;
}

namespace {

const BoardOperation* oldest_begun(const BoardView& view, bool waited_for) {
    const BoardOperation* oldest = nullptr;
    for (const BoardOperation& operation : view.operations) {
        if (!operation.started_ago || operation.ended_ago || operation.waited_ago.has_value() != waited_for) continue;
        if (is_arrival(operation)) continue;
        const auto key = [](const BoardOperation& o) { return std::pair(o.p2p_seq == 0, *o.started_ago); };
        if (oldest == nullptr || key(operation) > key(*oldest)) oldest = &operation;
    }
    return oldest;
}

}  // namespace

const BoardOperation* in_hand(const BoardView& view) { return oldest_begun(view, true); }

const BoardOperation* under_way(const BoardView& view) { return oldest_begun(view, false); }

std::string describe(const BoardView& view, const BoardOperation& operation) {
    const auto index = static_cast<std::size_t>(operation.group);
    const bool known = operation.group >= 0 && index < view.groups.size();
    return describe(operation) + (known ? fmt::format(" of group '{}'", view.groups[index].name) : "");
}

namespace {

/// One that never began tells nothing, nor does it that a program has begun well.
bool tells_its_end(const BoardOperation& operation) {
    if (is_arrival(operation) || (is_init(operation) && !operation.failed)) return false;
    return operation.started_ago && operation.ended_ago;
}

/// A small operation's times are those of the kernel's last tick, at most so long ago.
constexpr std::chrono::milliseconds kTick{10};

/// The last one. Because of ticks a large one before it may seem to have ended later than a small one; but a group does
/// its collectives in order, and of two groups that which was called later has most likely ended later.
const BoardOperation* last_ended(const BoardView& view) {
    const BoardOperation* last = nullptr;
    for (const BoardOperation& operation : view.operations) {
        if (!tells_its_end(operation)) continue;
        if (last == nullptr || *operation.ended_ago <= *last->ended_ago) last = &operation;
    }
    if (last == nullptr || last->failed || last->p2p_seq != 0 || last->group < 0) return last;
    const std::chrono::nanoseconds newest = *last->ended_ago;
    for (const BoardOperation& operation : view.operations) {
        if (!tells_its_end(operation) || operation.failed || operation.p2p_seq != 0) continue;
        const bool same_tick = *operation.ended_ago - newest <= kTick && operation.id > last->id;
        if (operation.group == last->group ? operation.seq > last->seq : same_tick) last = &operation;
    }
    return last;
}

}  // namespace

std::string describe_activity(const BoardView& view) {
    if (!view.written) return "";
    std::string text;
    if (const BoardOperation* current = in_hand(view)) {
        text = fmt::format("in {} for {}", describe(view, *current), how_long(*waits_for(*current, false)));
    } else if (const BoardOperation* last = last_ended(view)) {
        text = fmt::format("{} {}, {} before", last->failed ? "failed in" : "had finished", describe(view, *last),
                           how_long(*last->ended_ago));
    } else {
        text = "had done no collective";
    }
    if (const BoardOperation* other = in_hand(view) == nullptr ? under_way(view) : nullptr) {
        text += fmt::format(", with {} under way for {}", describe(view, *other), how_long(*other->started_ago));
    }
    if (!view.phase.empty()) text += fmt::format("; in phase '{}'", view.phase);
    return text;
}

}  // namespace ddprun::coordinator
