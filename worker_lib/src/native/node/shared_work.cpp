#include "worker_lib/src/native/node/shared_work.hpp"

// A rank publishes that it works before it claims a part, and that it does not after its last one. So a rank that has
// seen all parts claimed sees all ranks that still work, and needs to wait for those only. A rank that gives up gets
// its buffers back at once, while others may be reading them. It publishes that first, and a rank that has done a part
// looks for it afterwards: only parts that were whole count as done. Nothing but whether all parts are done decides how
// the operation ends. Once true, it stays true even if a rank fails or leaves later.

namespace ddp::detail {

namespace {

constexpr int kPartBits = 16;
constexpr std::uint64_t kPartMask = (std::uint64_t{1} << kPartBits) - 1;
static_assert(SharedWork::kMaxParts < kPartMask);

/// Returns how many parts of `meeting` a word counts. The word has the number of a meeting in its upper bits, and the
/// count in its lower ones. If its meeting is a later one, all parts of this one are done. Numbers may wrap around.
std::uint64_t parts_in(std::uint64_t word, std::uint64_t meeting) {
    const auto ahead = static_cast<std::int64_t>((word & ~kPartMask) - (meeting << kPartBits));
    if (ahead < 0) return 0;
    return ahead > 0 ? kPartMask : word & kPartMask;
}

/// Counts one more part, unless there are `parts` already, and returns the previous count. Calls before() before it
/// counts.
template <typename Before>
std::uint64_t count_up(std::atomic<std::uint64_t>& word, std::uint64_t meeting, std::uint64_t parts, Before before) {
    std::uint64_t seen = word.load(std::memory_order_acquire);
    while (true) {
        const std::uint64_t count = parts_in(seen, meeting);
        if (count >= parts) return count;
        before();
        if (word.compare_exchange_weak(seen, (meeting << kPartBits) + count + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
            return count;
        }
    }
}

}  // namespace

void SharedWork::run(const Operation& operation, std::size_t parts, const DoPart& do_part) {
    const std::uint64_t meeting = meetings_.joined();
    const auto signal_working = [&] { ranks_.own().working.store(meeting, std::memory_order_release); };
    for (int i = 0; i < ranks_.size(); ++i) {
        const int owner = (ranks_.own_index() + i) % ranks_.size();
        while (!failure_.ends(operation)) {
            const std::uint64_t part = count_up(ranks_.control(owner).claimed, meeting, parts, signal_working);
            if (part >= parts) break;
            do_part(owner, part);
            // While it waits here this rank still counts as working, so no peer takes the part for done.
            if (failure_.any_gives_up(operation)) wait_.await_failure(operation);
            count_up(ranks_.control(owner).finished, meeting, parts, [] {});
        }
    }
    finish(operation, parts);
}

void SharedWork::finish(const Operation& operation, std::size_t parts) {
    ranks_.publish_core();
    Control& own = ranks_.own();
    if (own.working.load(std::memory_order_relaxed) != 0) {
        own.working.store(0, std::memory_order_release);
        ranks_.wake_all();
    }
    while (true) {
        const bool failed = failure_.ends(operation);
        if (all_finished(parts)) return;
        if (failed) failure_.check(operation);
        // A late rank may for a moment count as working and find nothing to do. No rank waits for it then, because all
        // parts are done.
        wait_.until_all(operation, [&](int i) {
            return ranks_.control(i).working.load(std::memory_order_acquire) != meetings_.joined() ||
                   all_finished(parts);
        });
    }
}

bool SharedWork::all_finished(std::size_t parts) const {
    for (int i = 0; i < ranks_.size(); ++i) {
        if (parts_in(ranks_.control(i).finished.load(std::memory_order_acquire), meetings_.joined()) < parts) {
            return false;
        }
    }
    return true;
}

}  // namespace ddp::detail
