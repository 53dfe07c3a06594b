#include "worker_lib/src/group/shrink/journal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "common/fnv.hpp"

namespace ddp::detail {

std::string label_of(const std::vector<int>& excluded) {
    constexpr std::size_t kReadable = 24;
    if (excluded.empty()) return "none";
    std::string text = fmt::format("{}", fmt::join(excluded, ","));
    if (text.size() <= kReadable) return text;
    ddprun::Fnv64 hash;
    hash.add(text);
    return fmt::format("{:016x}", hash.value());
}

std::string ShrinkJournal::met(std::uint64_t round, const std::vector<int>& excluded) {
    return fmt::format("met {} {} {}", round, label_of(excluded), fmt::join(excluded, " "));
}

std::string ShrinkJournal::closed(std::uint64_t round, std::string_view label) {
    return fmt::format("closed {} {}", round, label);
}

std::string ShrinkJournal::refused(std::uint64_t round, std::string_view label, std::string_view why) {
    return fmt::format("refused {} {} {}", round, label, why);
}

std::string ShrinkJournal::failed(std::uint64_t round, std::string_view label, int rank) {
    return fmt::format("failed {} {} {}", round, label, rank);
}

std::string ShrinkJournal::death(int rank) { return fmt::format("dead {}", rank); }
std::string ShrinkJournal::accusation(int rank) { return fmt::format("gone {}", rank); }
std::string ShrinkJournal::presence(int rank) { return fmt::format("here {}", rank); }

void ShrinkJournal::read(const std::string& entry, ddprun::TimePoint now) {
    ++entries_;
    std::istringstream words(entry);
    std::string what;
    words >> what;
    if (what == "dead" || what == "gone" || what == "here") {
        int rank = -1;
        words >> rank;
        if (what == "dead") dead_.insert(rank);
        if (what == "gone") accused_.emplace(rank, now);
        if (what == "here") present_.insert(rank);
        return;
    }
    std::uint64_t round = 0;
    std::string label;
    words >> round >> label >> std::ws;
    if (what == "closed") settle(label, round, {Outcome::kClosed, {}});
    if (what == "refused") {
        std::string why;
        std::getline(words, why);
        settle(label, round, {Outcome::kRefused, why});
    }
    if (what == "met" && round == open_round(label)) {
        Formed& formed = formed_.emplace_back(Formed{label, round, {}, {}});
        for (int rank = 0; words >> rank;) formed.excluded.push_back(rank);
        settle(label, round, {Outcome::kMet, {}});
    }
    if (what == "failed") {
        int rank = -1;
        words >> rank;
        for (Formed& formed : formed_) {
            if (formed.label == label && formed.round == round) formed.failed.insert(rank);
        }
    }
}

void ShrinkJournal::settle(const std::string& label, std::uint64_t round, Round outcome) {
    if (round == open_round(label)) rounds_[label].push_back(std::move(outcome));
}

std::uint64_t ShrinkJournal::open_round(const std::string& label) const {
    const auto found = rounds_.find(label);
    return found == rounds_.end() ? 1 : found->second.size() + 1;
}

const ShrinkJournal::Round* ShrinkJournal::outcome(const std::string& label, std::uint64_t round) const {
    const auto found = rounds_.find(label);
    if (found == rounds_.end() || round > found->second.size()) return nullptr;
    return &found->second[round - 1];
}

bool ShrinkJournal::Formed::holds(int rank) const { return std::ranges::find(excluded, rank) == excluded.end(); }

const ShrinkJournal::Formed* ShrinkJournal::last_group_of(int rank) const {
    const auto last =
        std::find_if(formed_.rbegin(), formed_.rend(), [&](const Formed& formed) { return formed.holds(rank); });
    return last == formed_.rend() ? nullptr : &*last;
}

const ShrinkJournal::Formed* ShrinkJournal::group_of(int rank) const {
    const auto goes_on = [&](const Formed& formed) { return formed.holds(rank) && !formed.failed.contains(rank); };
    const auto last = std::find_if(formed_.rbegin(), formed_.rend(), goes_on);
    return last == formed_.rend() ? nullptr : &*last;
}

bool ShrinkJournal::has_failed(const std::string& label, std::uint64_t round, int rank) const {
    return std::ranges::any_of(formed_, [&](const Formed& formed) {
        return formed.label == label && formed.round == round && formed.failed.contains(rank);
    });
}

std::optional<ddprun::TimePoint> ShrinkJournal::accused_since(int rank) const {
    const auto found = accused_.find(rank);
    if (found == accused_.end() || present_.contains(rank)) return std::nullopt;
    return found->second;
}

}  // namespace ddp::detail
