#include "worker_lib/src/shrink_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "worker_lib/src/exchange.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

/// Between two looks at who has died meanwhile, and at who wants something else.
constexpr milliseconds kSlice{100};
constexpr milliseconds kPatience{5000};  ///< for what is there already
/// For a larger side that may be about to exclude us, and for word that somebody is gone, or is not.
constexpr milliseconds kGrace{1000};

constexpr const char* kWishes = "shrink/wish";

std::string in_words(const std::vector<int>& ranks) { return ranks.empty() ? "nobody" : name_ranks(ranks); }

}  // namespace

ShrinkAgreement::ShrinkAgreement(const GroupSpec& spec, const BackendImpl& backend, ShrinkHistory& history,
                                 const std::vector<int>& excluded, std::vector<int> others)
    : spec_(spec),
      backend_(backend),
      history_(history),
      wish_{.serial = ++history.calls, .state = ShrinkWish::State::kStands, .excluded = excluded},
      others_(std::move(others)),
      label_(label_of(excluded)),
      began_(ddprun::Clock::now()),
      deadline_(began_ + spec.init_timeout),
      unheard_(others_) {}

std::uint64_t ShrinkAgreement::reach() {
    publish(spec_, kWishes, wish_.text());
    try {
        for (;;) {
            catch_up();
            const std::uint64_t round = journal().open_round(label_);
            if (!meet(round)) continue;
            end_call(ShrinkWish::State::kWithdrawn);
            return round;
        }
    } catch (const Error&) {
        end_call(disagree_ ? ShrinkWish::State::kDisagreed : ShrinkWish::State::kWithdrawn);
        throw;
    }
}

void ShrinkAgreement::take_back(std::uint64_t round) {
    try {
        const std::string entry = ShrinkJournal::failed(round, label_, spec_.rank);
        while (!journal().has_failed(label_, round, spec_.rank)) try_append(entry);
    } catch (const Error&) {
        // The store is gone: nobody will read it any more.
    }
}

std::string ShrinkAgreement::key(const std::string& name) const { return group_key(spec_, "shrink/" + name); }

std::string ShrinkAgreement::count_key(std::uint64_t round) const {
    return key(fmt::format("{}/{}/count", label_, round));
}

void ShrinkAgreement::end_call(ShrinkWish::State state) {
    wish_.state = state;
    publish(spec_, kWishes, wish_.text());
}

void ShrinkAgreement::catch_up() {
    while (const auto entry = spec_.store->try_get(key(fmt::format("journal/{}", journal().next())), milliseconds(0)))
        history_.journal.read(*entry, ddprun::Clock::now());
}

void ShrinkAgreement::wait_for_entry() {
    const auto entry = spec_.store->try_get(key(fmt::format("journal/{}", journal().next())), kSlice);
    if (entry) history_.journal.read(*entry, ddprun::Clock::now());
}

/// Unless something stands there that we have not read: then that is read instead, and what was to be written has to be
/// thought over.
void ShrinkAgreement::try_append(const std::string& entry) {
    const std::string there = spec_.store->set_once(key(fmt::format("journal/{}", journal().next())), entry);
    history_.journal.read(there, ddprun::Clock::now());
}

/// False: somebody has given up in this round.
bool ShrinkAgreement::meet(std::uint64_t round) {
    full_since_.reset();
    unheard_ = others_;
    try {
        join(round);
        while (is_open(round)) {
            look_around(round);
            if (is_open(round)) wait_for_entry();
        }
    } catch (const Error&) {
        while (is_open(round)) try_append(ShrinkJournal::closed(round, label_));
        if (journal().outcome(label_, round)->outcome == ShrinkJournal::Outcome::kClosed) throw;
    }
    return obey(round);
}

/// Once: one that gave up, could not close the round and calls again has been counted. A round in which nobody knows
/// whether this rank has been is closed.
void ShrinkAgreement::join(std::uint64_t round) {
    auto& joined = history_.joined[label_];
    if (joined.round == round) {
        while (!joined.counted && is_open(round)) try_append(ShrinkJournal::closed(round, label_));
        return;
    }
    joined = {.round = round, .counted = false};
    (void)spec_.store->add(count_key(round), 1);
    joined.counted = true;
}

bool ShrinkAgreement::obey(std::uint64_t round) const {
    const auto& [outcome, text] = *journal().outcome(label_, round);
    if (outcome == ShrinkJournal::Outcome::kRefused) throw Error(ErrorCode::Mismatch, text);
    return outcome == ShrinkJournal::Outcome::kMet;
}

/// Throws if it is in vain to wait on; writes down what is decided if it can be.
void ShrinkAgreement::look_around(std::uint64_t round) {
    check_alive();
    std::vector<int> ranks = unheard_;
    for (const int rank : others_) {  // of these, who has called again since it went on without us?
        const auto* const group = journal().last_group_of(rank);
        const bool without_us = group != nullptr && !group->holds(spec_.rank);
        if (without_us && std::ranges::find(unheard_, rank) == unheard_.end()) ranks.push_back(rank);
    }
    ranks.insert(ranks.end(), wish_.excluded.begin(), wish_.excluded.end());
    const ShrinkWishes wishes = read_wishes(std::move(ranks));
    hear(wishes);
    check_not_left_behind(wishes);
    tell_who_is_there(wishes);
    const auto now = ddprun::Clock::now();
    if (!full_since_ && spec_.store->add(count_key(round), 0) >= static_cast<std::int64_t>(others_.size()) + 1)
        full_since_ = now;
    if (full_since_) return decide(round, wishes);
    const auto in_the_way = rival(wishes);
    if (in_the_way && !in_the_way->doubtful && now >= began_ + kGrace)
        throw Error(ErrorCode::Mismatch, complaint(*in_the_way));
    if (now >= deadline_) report_absent();
}

/// All have met: they go on if no other side does, nor can.
void ShrinkAgreement::decide(std::uint64_t round, const ShrinkWishes& wishes) {
    const auto now = ddprun::Clock::now();
    if (const auto in_the_way = rival(wishes)) {
        if (!in_the_way->doubtful && now >= began_ + kGrace)
            try_append(ShrinkJournal::refused(round, label_, complaint(*in_the_way)));
        return;
    }
    const auto is_gone = [&](int rank) { return presence_of(rank, wishes) == Presence::kGone; };
    const auto ours = side_without(wish_.excluded, static_cast<int>(spec_.members.size()));
    const bool unrivalled = wish_.excluded.empty() || beats(ours, wish_.excluded);
    if (unrivalled || now >= *full_since_ + kGrace || std::ranges::all_of(wish_.excluded, is_gone))
        try_append(ShrinkJournal::met(round, wish_.excluded));
}

ShrinkWishes ShrinkAgreement::read_wishes(std::vector<int> ranks) const {
    const auto key_of = [&](int rank) { return group_key(spec_, fmt::format("{}/{}", kWishes, rank)); };
    std::vector<std::string> keys;
    for (const int rank : ranks) keys.push_back(key_of(rank));
    const auto absent = spec_.store->missing(keys);
    const auto is_absent = [&](const std::string& key) { return std::ranges::find(absent, key) != absent.end(); };
    std::erase_if(ranks, [&](int rank) { return is_absent(key_of(rank)); });
    std::erase_if(keys, is_absent);
    const auto said = spec_.store->get_all(keys, kPatience);
    ShrinkWishes wishes;
    for (std::size_t i = 0; i < said.size(); ++i) wishes.emplace(ranks[i], ShrinkWish::parse(said[i]));
    return wishes;
}

/// Compares with those that have said what they exclude.
void ShrinkAgreement::hear(const ShrinkWishes& wishes) {
    std::erase_if(unheard_, [&](int rank) {
        const auto said = wishes.find(rank);
        return said != wishes.end() && agrees(rank, said->second);
    });
}

/// False: it is between two calls.
bool ShrinkAgreement::agrees(int rank, const ShrinkWish& theirs) {
    if (theirs.state == ShrinkWish::State::kWithdrawn || theirs.serial <= history_.refused[rank]) return false;
    if (theirs.excluded == wish_.excluded) return theirs.stands();
    history_.refused[rank] = theirs.serial;
    disagree_ = true;
    std::vector<int> either = excluded_by_either(rank, theirs);
    const std::string advice =
        either.empty() ? "" : fmt::format(": call it again on every rank that is left, without {}", in_words(either));
    throw Error(ErrorCode::Mismatch,
                fmt::format("shrink of group '{}': the survivors disagree: {} excludes {}, {} excludes {}. All must "
                            "exclude the same ranks{}",
                            spec_.name, backend_.name_of(spec_.rank), in_words(wish_.excluded), backend_.name_of(rank),
                            in_words(theirs.excluded), advice),
                std::move(either));
}

/// By us or by that rank, and neither of the two.
std::vector<int> ShrinkAgreement::excluded_by_either(int rank, const ShrinkWish& theirs) const {
    std::vector<int> all;
    std::ranges::set_union(wish_.excluded, theirs.excluded, std::back_inserter(all));
    std::erase_if(all, [&](int one) { return one == rank || one == spec_.rank; });
    return all;
}

/// Of those of the excluded who have spoken here: who is gone for all that we know. And that we are not.
void ShrinkAgreement::tell_who_is_there(const ShrinkWishes& wishes) {
    for (const int rank : wish_.excluded) {
        if (!wishes.contains(rank) || !counts_as_gone(rank)) continue;
        while (backend_.state_of(rank).ended && !journal().is_dead(rank)) try_append(ShrinkJournal::death(rank));
        // What is read in the place of our word may be that it goes on.
        while (counts_as_gone(rank) && !journal().ever_accused(rank)) try_append(ShrinkJournal::accusation(rank));
    }
    while (journal().accused_since(spec_.rank)) try_append(ShrinkJournal::presence(spec_.rank));
}

/// For all that this rank knows itself. Who has left this group and goes on in one that was formed of it is not.
bool ShrinkAgreement::counts_as_gone(int rank) const {
    const RankState state = backend_.state_of(rank);
    return state.gone && !(state.left && journal().group_of(rank) != nullptr);
}

/// One that has never spoken here is gone if we know it. Who has might form a group, or has: unless its process is
/// known to have ended it must have had the time to deny it, for our connection may be what is gone.
Presence ShrinkAgreement::presence_of(int rank, const ShrinkWishes& wishes) const {
    if (journal().is_dead(rank) || backend_.state_of(rank).ended) return Presence::kGone;
    const bool gone_for_us = counts_as_gone(rank);
    if (!wishes.contains(rank)) return gone_for_us ? Presence::kGone : Presence::kThere;
    if (!journal().ever_accused(rank)) return gone_for_us ? Presence::kDoubtful : Presence::kThere;
    const auto accused = journal().accused_since(rank);
    if (!accused) return Presence::kThere;
    return ddprun::Clock::now() - *accused >= kGrace ? Presence::kGone : Presence::kDoubtful;
}

std::optional<RivalSide> ShrinkAgreement::rival(const ShrinkWishes& wishes) const {
    return find_rival(wish_.excluded, static_cast<int>(spec_.members.size()), journal(), wishes,
                      [&](int rank) { return presence_of(rank, wishes); });
}

std::string ShrinkAgreement::complaint(const RivalSide& rival) const {
    if (rival.formed) {
        return fmt::format(
            "shrink of group '{}': {} has gone on already in a group without {}. Two parts of a job "
            "must not go on side by side: end that one, or this",
            spec_.name, backend_.name_of(rival.rank), backend_.name_of(spec_.rank));
    }
    return fmt::format(
        "shrink of group '{}': {} exclude{} {}, which excludes {}. Of two sides the larger one goes on, "
        "of equal ones that with the lowest rank: not this one",
        spec_.name, name_ranks(rival.side), rival.side.size() == 1 ? "s" : "", backend_.name_of(spec_.rank),
        in_words(wish_.excluded));
}

void ShrinkAgreement::check_alive() const {
    for (const int rank : others_) {
        const auto state = backend_.state_of(rank);
        if (!state.gone) continue;
        throw Error(ErrorCode::PeerLost,
                    fmt::format("shrink of group '{}': rank {} waits for a survivor that is none: {} Call it again, "
                                "with that rank excluded too",
                                spec_.name, spec_.rank, sentence(state.text)),
                    {rank});
    }
}

void ShrinkAgreement::check_not_left_behind(const ShrinkWishes& wishes) const {
    const std::vector<int> gone_on = gone_on_without(spec_.rank, others_, journal(), wishes);
    if (gone_on.empty()) return;
    throw Error(ErrorCode::Mismatch,
                fmt::format("shrink of group '{}': {} {} gone on in a group without {}, which waits for {}. End it, or "
                            "have the others call shrink() of '{}' again",
                            spec_.name, name_ranks(gone_on), gone_on.size() == 1 ? "has" : "have",
                            backend_.name_of(spec_.rank), gone_on.size() == 1 ? "it" : "them", spec_.name));
}

void ShrinkAgreement::report_absent() const {
    const std::vector<int>& ranks = unheard_.empty() ? others_ : unheard_;
    const auto seconds = std::chrono::duration<double>(spec_.init_timeout).count();
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(backend_.name_of(rank));
    throw Error(ErrorCode::Timeout,
                fmt::format("shrink of group '{}': rank {} waited {:g} s for {} to call it, too. Exclude all that "
                            "are gone",
                            spec_.name, spec_.rank, seconds, list_of(std::move(names))),
                ranks);
}

}  // namespace ddp::detail
