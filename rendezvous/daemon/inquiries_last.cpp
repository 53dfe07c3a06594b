// A job whose workers have all ended well but some that are stopped: nobody fails of that, so nobody would ever tell.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/stall_now.hpp"
#include "rendezvous/daemon/inquiries.hpp"

namespace ddprun::daemon {

using namespace coordinator;

namespace {

/// When a worker ended well for the last time; empty: none has.
std::optional<TimePoint> last_end(const Group& group) {
    std::optional<TimePoint> last;
    const auto add = [&](TimePoint at) { last = std::max(last.value_or(at), at); };
    for (const auto& [rank, at] : group.finished) add(at);
    for (const auto& [id, member] : group.members) {
        if (member.succeeded) add(member.succeeded_at);
    }
    return last;
}

}  // namespace

InquiryActions Inquiries::ask_about_the_last(const State& state, TimePoint now) {
    if (state.phase != Phase::kRunning) return {};
    const auto last = last_end(state.group);
    if (!last || now < *last + kLeftBehindAfter) return {};
    forget_older_generations(state.group.generation);
    if (std::exchange(last_end_, last) != last) last_pause_ = kPause;
    if (now < last_asked_at_ + last_pause_) return {};
    last_asked_at_ = now;
    last_pause_ = std::min<std::chrono::nanoseconds>(2 * last_pause_, kMaxLeftPause);
    return ask(state,
               {.generation = state.group.generation,
                .inspector = {},
                .deadline = now + kPatience,
                .missing = {},
                .boards = {},
                .about_the_last = true},
               std::nullopt, 1, now);
}

/// Who is not stopped may be saving the last checkpoint. Of a node that does not answer nothing is known.
void Inquiries::conclude_the_last(const State& state, const Inquiry& inquiry, InquiryActions& actions) {
    if (inquiry.generation != state.group.generation || state.phase != Phase::kRunning || !inquiry.missing.empty())
        return;
    for (const auto& [id, member] : state.group.members) {
        if (!member.succeeded && !answers(state, id)) return;
    }
    std::string text = judge_left_behind(inquiry.boards);
    if (text.empty()) {
        last_told_.reset();
        return;
    }
    using std::chrono::nanoseconds;
    const nanoseconds quiet = last_told_ ? std::min<nanoseconds>(*last_told_ * 2, kMaxQuiet) : nanoseconds(kQuiet);
    last_told_ = last_pause_ = quiet;
    tell_all(state, std::move(text), "", actions);
}

}  // namespace ddprun::daemon
