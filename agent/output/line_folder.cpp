#include "agent/output/line_folder.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace ddprun::agent {
namespace {

/// The distance of lines at the end of the list, and the largest one of a line that is put between two others.
constexpr std::int64_t kEndGap = std::int64_t{1} << 32;
constexpr std::int64_t kInnerGap = std::int64_t{1} << 12;
constexpr std::int64_t kMaxOrder = std::int64_t{1} << 62;

}  // namespace

void LineFolder::open(int source) {
    if (static_cast<std::size_t>(source) >= sources_.size()) sources_.resize(static_cast<std::size_t>(source) + 1);
    Source& opened = sources_[static_cast<std::size_t>(source)];
    if (opened.open) return;
    opened.open = true;
    if (waits_for(opened)) ++awaited_;
}

void LineFolder::close(int source) {
    if (static_cast<std::size_t>(source) >= sources_.size()) return;
    Source& closed = sources_[static_cast<std::size_t>(source)];
    if (waits_for(closed)) --awaited_;
    closed.open = false;
    release_complete();
}

void LineFolder::add(int number, std::string_view text, TimePoint now) {
    Source& source = sources_.at(static_cast<std::size_t>(number));
    assert(source.open);
    // Joins the first line with this text behind the latest one of this source, which keeps the source's order.
    const auto known = texts_.find(text);
    Position line = held_.end();
    if (known != texts_.end()) {
        const Equal& equal = known->second;
        auto candidate = equal.lines.begin() + static_cast<std::ptrdiff_t>(equal.first);
        if (source.has_line) {
            candidate = std::upper_bound(candidate, equal.lines.end(), source.last->order,
                                         [](std::int64_t order, Position other) { return order < other->order; });
        }
        if (candidate != equal.lines.end()) line = *candidate;
    }
    if (line == held_.end()) line = insert(source, text, now);
    line->sources.push_back(number);
    line->joined_at = now;
    held_bytes_ += sizeof(int);
    if (!source.has_line) --awaited_;
    source.has_line = true;
    source.last = line;
    release_complete();
    while (held_bytes_ > kMaxHeldBytes) release_first();
}

/// Puts a new line behind the latest one of `source`, or in front of all: lines that others have printed in the
/// meantime stay behind it, where this source can still join them.
LineFolder::Position LineFolder::insert(const Source& source, std::string_view text, TimePoint now) {
    auto known = texts_.find(text);
    if (known == texts_.end()) known = texts_.emplace(text, Equal{}).first;
    const Position next = source.has_line ? std::next(source.last) : held_.begin();
    const std::int64_t order = order_before(next);
    const Position line = held_.insert(next, Held{&*known, order, now, now, {}});
    Equal& equal = known->second;
    equal.lines.insert(
        std::upper_bound(equal.lines.begin() + static_cast<std::ptrdiff_t>(equal.first), equal.lines.end(), order,
                         [](std::int64_t value, Position other) { return value < other->order; }),
        line);
    held_bytes_ += sizeof(Held) + sizeof(Texts::value_type) + text.size();
    return line;
}

/// Returns a number for a line that is put in front of `next`.
std::int64_t LineFolder::order_before(Position next) {
    if (held_.empty()) return 0;
    if (next == held_.begin()) {
        if (next->order < -kMaxOrder) renumber();
        return next->order - kEndGap;
    }
    const Position previous = std::prev(next);
    if (next == held_.end()) {
        if (previous->order > kMaxOrder) renumber();
        return previous->order + kEndGap;
    }
    if (next->order - previous->order < 2) renumber();
    return previous->order + std::min(kInnerGap, (next->order - previous->order) / 2);
}

void LineFolder::renumber() {
    std::int64_t order = 0;
    for (Held& line : held_) line.order = order += kEndGap;
}

void LineFolder::release_due(TimePoint now) {
    const auto is_due = [now](const Held& line) {
        return now - line.joined_at >= kQuiet || now - line.since >= kMaxHeld;
    };
    const auto last = std::find_if(held_.rbegin(), held_.rend(), is_due);
    if (last != held_.rend()) release_through(std::prev(last.base()));
}

void LineFolder::release_lines_of(int source) {
    if (static_cast<std::size_t>(source) >= sources_.size()) return;
    const Source& known = sources_[static_cast<std::size_t>(source)];
    if (known.has_line) release_through(known.last);
}

void LineFolder::release_all() {
    while (!held_.empty()) release_first();
}

void LineFolder::release_through(Position last) {
    const std::int64_t end = last->order;
    while (!held_.empty() && held_.front().order <= end) release_first();
}

/// Releases the lines that no source can join any more: every open source has printed a later one.
void LineFolder::release_complete() {
    while (!held_.empty() && awaited_ == 0) release_first();
}

void LineFolder::release_first() {
    Held& line = held_.front();
    std::ranges::sort(line.sources);
    sink_(Folded{line.text->first, line.since, line.sources});
    for (const int number : line.sources) {
        Source& source = sources_[static_cast<std::size_t>(number)];
        if (source.last != held_.begin()) continue;
        source.has_line = false;
        if (source.open) ++awaited_;
    }
    held_bytes_ -= sizeof(Held) + sizeof(Texts::value_type) + line.text->first.size();
    held_bytes_ -= line.sources.size() * sizeof(int);
    Equal& equal = line.text->second;
    if (++equal.first == equal.lines.size()) {
        texts_.erase(texts_.find(line.text->first));
    } else if (2 * equal.first > equal.lines.size()) {
        equal.lines.erase(equal.lines.begin(), equal.lines.begin() + static_cast<std::ptrdiff_t>(equal.first));
        equal.first = 0;
    }
    held_.pop_front();
}

}  // namespace ddprun::agent
