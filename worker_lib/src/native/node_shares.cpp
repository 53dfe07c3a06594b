// Work that is shared out in parts, to whoever comes first: where ranks share cores, who waits for a certain rank waits
// until the kernel lets that one run.
//
// A rank says that it works before it claims a part, and that it does not after its last one. So whoever has seen that
// all parts are claimed sees all that are at work, and needs to wait for them only. A rank that gives up after it has
// announced its buffers gets them back at once, while others may be reading them. It says that it gives up before, and
// who has done a part looks for that afterwards: only parts that were whole count as done. Whether all are done decides
// how the operation ends, and nothing else: it does not become untrue, whoever fails or leaves later.

#include "worker_lib/src/native/node.hpp"

namespace ddp::detail {

namespace {

constexpr int kPartBits = 16;
constexpr std::uint64_t kPartMask = (std::uint64_t{1} << kPartBits) - 1;
static_assert(kMostShareParts < kPartMask);

/// Of a word that counts parts: the meeting they belong to in the upper bits, how many in the lower ones. How many of
/// `meeting`'s; all if the word is of a later one, which nobody comes to before. Meetings may wrap around.
std::uint64_t parts_in(std::uint64_t word, std::uint64_t meeting) {
    const auto ahead = static_cast<std::int64_t>((word & ~kPartMask) - (meeting << kPartBits));
    if (ahead < 0) return 0;
    return ahead > 0 ? kPartMask : word & kPartMask;
}

/// Counts one part more, unless there are `parts`: then nothing has happened. Returns how many there were.
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

void Node::share_out(const Operation& operation, std::size_t parts, const DoPart& do_part) {
    const auto say_working = [this] { own().working.store(joined_, std::memory_order_release); };
    for (int i = 0; i < size(); ++i) {
        const int owner = (own_index_ + i) % size();
        while (!spoils(operation)) {
            const std::uint64_t part = count_up(control(owner).claimed, joined_, parts, say_working);
            if (part >= parts) break;
            do_part(owner, part);
            if (any_gives_up(operation))
                await_failure(operation);  // we go on to say that we work: nobody takes the part for done
            count_up(control(owner).finished, joined_, parts, [] {});
        }
    }
    finish_shares(operation, parts);
}

void Node::finish_shares(const Operation& operation, std::size_t parts) {
    say_core();
    if (own().working.load(std::memory_order_relaxed) != 0) {
        own().working.store(0, std::memory_order_release);
        wake_all();
    }
    while (true) {
        const bool failed = spoils(operation);
        if (all_finished(parts)) return;
        if (failed) check_poison(operation);
        // One that comes late may say for a moment that it works, and find nothing: nobody waits for it, as all is
        // done.
        wait_until(operation, [&](int i) {
            return control(i).working.load(std::memory_order_acquire) != joined_ || all_finished(parts);
        });
    }
}

bool Node::all_finished(std::size_t parts) const {
    for (int i = 0; i < size(); ++i) {
        if (parts_in(control(i).finished.load(std::memory_order_acquire), joined_) < parts) return false;
    }
    return true;
}

}  // namespace ddp::detail
