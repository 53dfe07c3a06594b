#include "worker_lib/src/group/shrink/survivor_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "worker_lib/src/bootstrap/exchange.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

/// The interval at which a rank looks for lost survivors and for other requests.
constexpr milliseconds kSurvivorInterval{100};
constexpr milliseconds kReadTimeout{5000};  ///< for keys that exist
/// Time to wait for a larger side that may be about to exclude this one, and for reports that a rank is lost or
/// present.
constexpr milliseconds kGrace{1000};

constexpr const char* kRequests = "shrink/request";

std::string text_of(const std::vector<int>& ranks) { return ranks.empty() ? "no rank" : ddprun::name_ranks(ranks); }

}  // namespace

SurvivorAgreement::SurvivorAgreement(const GroupSpec& spec, const PeerStates& backend, ShrinkHistory& history,
                                     const std::vector<int>& excluded, std::vector<int> others)
    : spec_(spec),
      backend_(backend),
      history_(history),
      request_{.serial = ++history.calls, .state = ShrinkRequest::State::kActive, .excluded = excluded},
      others_(std::move(others)),
      label_(label_of(excluded)),
      began_(ddprun::Clock::now()),
      deadline_(began_ + spec.init_timeout),
      unheard_(others_) {}

std::uint64_t SurvivorAgreement::reach() {
    publish(spec_, kRequests, request_.text());
    try {
        for (;;) {
            catch_up();
            const std::uint64_t round = journal().open_round(label_);
            if (!meet(round)) continue;
            end_call(ShrinkRequest::State::kWithdrawn);
            return round;
        }
    } catch (const Error&) {
        end_call(disagree_ ? ShrinkRequest::State::kDisagreed : ShrinkRequest::State::kWithdrawn);
        throw;
    }
}

void SurvivorAgreement::take_back(std::uint64_t round) {
    try {
        const std::string entry = ShrinkJournal::failed(round, label_, spec_.rank);
        while (!journal().has_failed(label_, round, spec_.rank)) try_append(entry);
    } catch (const Error&) {
        // The store is lost, so no rank will read the journal.
    }
}

std::string SurvivorAgreement::key(const std::string& name) const { return group_key(spec_, "shrink/" + name); }

std::string SurvivorAgreement::count_key(std::uint64_t round) const {
    return key(fmt::format("{}/{}/count", label_, round));
}

void SurvivorAgreement::end_call(ShrinkRequest::State state) {
    request_.state = state;
    publish(spec_, kRequests, request_.text());
}

void SurvivorAgreement::catch_up() {
    while (const auto entry = spec_.store->try_get(key(fmt::format("journal/{}", journal().next())), milliseconds(0)))
        history_.journal.read(*entry, ddprun::Clock::now());
}

void SurvivorAgreement::wait_for_entry() {
    const auto entry = spec_.store->try_get(key(fmt::format("journal/{}", journal().next())), kSurvivorInterval);
    if (entry) history_.journal.read(*entry, ddprun::Clock::now());
}

/// Writes the entry, unless there is one that this rank has not read. Then it reads that instead, and the caller
/// decides again.
void SurvivorAgreement::try_append(const std::string& entry) {
    const std::string there = spec_.store->set_once(key(fmt::format("journal/{}", journal().next())), entry);
    history_.journal.read(there, ddprun::Clock::now());
}

/// Returns false if a rank has given up in this round.
bool SurvivorAgreement::meet(std::uint64_t round) {
    full_since_.reset();
    unheard_ = others_;
    try {
        join(round);
        while (is_open(round)) {
            check_and_decide(round);
            if (is_open(round)) wait_for_entry();
        }
    } catch (const Error&) {
        while (is_open(round)) try_append(ShrinkJournal::closed(round, label_));
        if (journal().outcome(label_, round)->outcome == ShrinkJournal::Outcome::kClosed) throw;
    }
    return obey(round);
}

/// Counts this rank, once: it may have been counted in an earlier call that gave up and could not close the round.
/// Closes a round in which it may or may not have been counted.
void SurvivorAgreement::join(std::uint64_t round) {
    auto& joined = history_.joined[label_];
    if (joined.round == round) {
        while (!joined.counted && is_open(round)) try_append(ShrinkJournal::closed(round, label_));
        return;
    }
    joined = {.round = round, .counted = false};
    (void)spec_.store->add(count_key(round), 1);
    joined.counted = true;
}

bool SurvivorAgreement::obey(std::uint64_t round) const {
    const auto& [outcome, text] = *journal().outcome(label_, round);
    if (outcome == ShrinkJournal::Outcome::kRefused) throw Error(ErrorCode::Mismatch, text);
    return outcome == ShrinkJournal::Outcome::kMet;
}

/// Throws if further waiting is useless. Decides the round (met or refused) if possible.
void SurvivorAgreement::check_and_decide(std::uint64_t round) {
    check_alive();
    std::vector<int> ranks = unheard_;
    for (const int rank : others_) {  // a rank that went on without this one may have called again
        const auto* const group = journal().last_group_of(rank);
        const bool without_this_rank = group != nullptr && !group->holds(spec_.rank);
        if (without_this_rank && std::ranges::find(unheard_, rank) == unheard_.end()) ranks.push_back(rank);
    }
    ranks.insert(ranks.end(), request_.excluded.begin(), request_.excluded.end());
    const ShrinkRequests requests = read_requests(std::move(ranks));
    compare(requests);
    check_not_left_behind(requests);
    report_presence(requests);
    const auto now = ddprun::Clock::now();
    if (!full_since_ && spec_.store->add(count_key(round), 0) >= static_cast<std::int64_t>(others_.size()) + 1)
        full_since_ = now;
    if (full_since_) return decide(round, requests);
    const auto in_the_way = rival(requests);
    if (in_the_way && !in_the_way->doubtful && now >= began_ + kGrace)
        throw Error(ErrorCode::Mismatch, complaint(*in_the_way));
    if (now >= deadline_) report_absent();
}

/// Decides the round after all ranks have met: they go on unless another side does or can.
void SurvivorAgreement::decide(std::uint64_t round, const ShrinkRequests& requests) {
    const auto now = ddprun::Clock::now();
    if (const auto in_the_way = rival(requests)) {
        if (!in_the_way->doubtful && now >= began_ + kGrace)
            try_append(ShrinkJournal::refused(round, label_, complaint(*in_the_way)));
        return;
    }
    const auto is_gone = [&](int rank) { return presence_of(rank, requests) == Presence::kGone; };
    const auto ours = side_without(request_.excluded, static_cast<int>(spec_.members.size()));
    const bool unrivalled = request_.excluded.empty() || beats(ours, request_.excluded);
    if (unrivalled || now >= *full_since_ + kGrace || std::ranges::all_of(request_.excluded, is_gone))
        try_append(ShrinkJournal::met(round, request_.excluded));
}

ShrinkRequests SurvivorAgreement::read_requests(std::vector<int> ranks) const {
    const auto key_of = [&](int rank) { return group_key(spec_, fmt::format("{}/{}", kRequests, rank)); };
    std::vector<std::string> keys;
    for (const int rank : ranks) keys.push_back(key_of(rank));
    const auto absent = spec_.store->missing(keys);
    const auto is_absent = [&](const std::string& key) { return std::ranges::find(absent, key) != absent.end(); };
    std::erase_if(ranks, [&](int rank) { return is_absent(key_of(rank)); });
    std::erase_if(keys, is_absent);
    const auto texts = spec_.store->get_all(keys, kReadTimeout);
    ShrinkRequests requests;
    for (std::size_t i = 0; i < texts.size(); ++i) requests.emplace(ranks[i], ShrinkRequest::parse(texts[i]));
    return requests;
}

/// Removes the ranks that have published the same request from unheard_.
void SurvivorAgreement::compare(const ShrinkRequests& requests) {
    std::erase_if(unheard_, [&](int rank) {
        const auto found = requests.find(rank);
        return found != requests.end() && agrees(rank, found->second);
    });
}

/// Returns whether the rank makes the same request; false while it is between two calls. Throws Error{Mismatch} if its
/// request differs.
bool SurvivorAgreement::agrees(int rank, const ShrinkRequest& theirs) {
    if (theirs.state == ShrinkRequest::State::kWithdrawn || theirs.serial <= history_.refused[rank]) return false;
    if (theirs.excluded == request_.excluded) return theirs.is_active();
    history_.refused[rank] = theirs.serial;
    disagree_ = true;
    std::vector<int> either = excluded_by_either(rank, theirs);
    const std::string advice =
        either.empty() ? "" : fmt::format(": call it again on every rank that is left, without {}", text_of(either));
    throw Error(ErrorCode::Mismatch,
                fmt::format("shrink of group '{}': the survivors disagree: {} excludes {}, {} excludes {}. All must "
                            "exclude the same ranks{}",
                            spec_.name, backend_.name_of(spec_.rank), text_of(request_.excluded),
                            backend_.name_of(rank), text_of(theirs.excluded), advice),
                std::move(either));
}

/// Returns the union of the ranks that this rank and `rank` exclude, minus those two.
std::vector<int> SurvivorAgreement::excluded_by_either(int rank, const ShrinkRequest& theirs) const {
    std::vector<int> all;
    std::ranges::set_union(request_.excluded, theirs.excluded, std::back_inserter(all));
    std::erase_if(all, [&](int one) { return one == rank || one == spec_.rank; });
    return all;
}

/// Writes into the journal which of the excluded ranks that have called shrink() are lost, as far as this rank knows,
/// and that this rank is present if another one has reported it lost.
void SurvivorAgreement::report_presence(const ShrinkRequests& requests) {
    for (const int rank : request_.excluded) {
        if (!requests.contains(rank) || !counts_as_lost(rank)) continue;
        while (backend_.state_of(rank).ended && !journal().is_dead(rank)) try_append(ShrinkJournal::death(rank));
        // The entry that is read instead may show that the rank goes on.
        while (counts_as_lost(rank) && !journal().ever_accused(rank)) try_append(ShrinkJournal::accusation(rank));
    }
    while (journal().accused_since(spec_.rank)) try_append(ShrinkJournal::presence(spec_.rank));
}

/// Returns whether this rank has itself lost the other one; reports of third ranks do not count. A rank that has left
/// this group and goes on in a group that was formed from it is not lost.
bool SurvivorAgreement::counts_as_lost(int rank) const {
    const RankState state = backend_.state_of(rank);
    return state.gone && !(state.left && journal().group_of(rank) != nullptr);
}

/// Returns the presence of an excluded rank. A rank that has never called shrink() is gone if this rank has lost it. A
/// rank that has called it may form a group, and perhaps only its connection is lost. So it gets time to deny the loss,
/// unless its process is known to have ended.
Presence SurvivorAgreement::presence_of(int rank, const ShrinkRequests& requests) const {
    if (journal().is_dead(rank) || backend_.state_of(rank).ended) return Presence::kGone;
    const bool lost_here = counts_as_lost(rank);
    if (!requests.contains(rank)) return lost_here ? Presence::kGone : Presence::kThere;
    if (!journal().ever_accused(rank)) return lost_here ? Presence::kDoubtful : Presence::kThere;
    const auto accused = journal().accused_since(rank);
    if (!accused) return Presence::kThere;
    return ddprun::Clock::now() - *accused >= kGrace ? Presence::kGone : Presence::kDoubtful;
}

std::optional<RivalSide> SurvivorAgreement::rival(const ShrinkRequests& requests) const {
    return find_rival(request_.excluded, static_cast<int>(spec_.members.size()), journal(), requests,
                      [&](int rank) { return presence_of(rank, requests); });
}

std::string SurvivorAgreement::complaint(const RivalSide& rival) const {
    if (rival.formed) {
        return fmt::format(
            "shrink of group '{}': {} has gone on already in a group without {}. Two parts of a job "
            "must not go on side by side: end that one, or this",
            spec_.name, backend_.name_of(rival.rank), backend_.name_of(spec_.rank));
    }
    return fmt::format(
        "shrink of group '{}': {} {} {}, which excludes {}. Of two sides the larger one goes on, "
        "of equal ones the one with the lowest rank: not this one",
        spec_.name, ddprun::name_ranks(rival.side), ddprun::inflect(rival.side.size(), "excludes", "exclude"),
        backend_.name_of(spec_.rank), text_of(request_.excluded));
}

void SurvivorAgreement::check_alive() const {
    for (const int rank : others_) {
        const auto state = backend_.state_of(rank);
        if (!state.gone) continue;
        throw Error(ErrorCode::PeerLost,
                    fmt::format("shrink of group '{}': rank {} cannot wait for rank {}: {} Call shrink() again "
                                "with that rank excluded, too",
                                spec_.name, spec_.rank, rank, ddprun::sentence(state.text)),
                    {rank});
    }
}

void SurvivorAgreement::check_not_left_behind(const ShrinkRequests& requests) const {
    const std::vector<int> gone_on = gone_on_without(spec_.rank, others_, journal(), requests);
    if (gone_on.empty()) return;
    throw Error(
        ErrorCode::Mismatch,
        fmt::format("shrink of group '{}': {} {} gone on in a group without {}. End that rank, or have the others "
                    "call shrink() of '{}' again",
                    spec_.name, ddprun::name_ranks(gone_on), ddprun::inflect(gone_on.size(), "has", "have"),
                    backend_.name_of(spec_.rank), spec_.name));
}

void SurvivorAgreement::report_absent() const {
    const std::vector<int>& ranks = unheard_.empty() ? others_ : unheard_;
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(backend_.name_of(rank));
    throw Error(ErrorCode::Timeout,
                fmt::format("shrink of group '{}': rank {} waited {} for {} to call shrink() with the same excluded "
                            "ranks. Exclude those of them that are lost, on every survivor",
                            spec_.name, spec_.rank, ddprun::seconds_text(spec_.init_timeout),
                            ddprun::list_of(std::move(names))),
                ranks);
}

}  // namespace ddp::detail
