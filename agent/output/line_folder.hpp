#pragma once
// LineFolder: turns equal lines of several sources into one line with the set of its sources. A line is held until no
// further source can print it, or for a short time. The lines of one source keep their order, and none is lost. Owned
// by Console, one for each of its streams. Pure: the time is passed in.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/clock.hpp"

namespace ddprun::agent {

class LineFolder {
public:
    /// A line is due when no source has joined it for this time …
    static constexpr std::chrono::milliseconds kQuiet{300};
    /// … or when it was held for this time.
    static constexpr std::chrono::milliseconds kMaxHeld{2000};
    /// Beyond this number of bytes the oldest lines are released.
    static constexpr std::size_t kMaxHeldBytes = 32u << 20;

    /// A line with its end, the time at which its first source printed it, and its sources in ascending order.
    struct Folded {
        std::string_view text;
        TimePoint since;
        const std::vector<int>& sources;
    };
    using Sink = std::function<void(const Folded&)>;

    /// `sink` gets the lines, in order, during the calls below.
    explicit LineFolder(Sink sink) : sink_(std::move(sink)) {}

    /// Adds a source: lines now wait for it. close() ends that; a source that is not open is ignored.
    void open(int source);
    void close(int source);

    /// Takes a line of an open source.
    void add(int source, std::string_view text, TimePoint now);
    /// Releases the lines that are due, and those in front of them.
    void release_due(TimePoint now);
    /// Releases the lines of `source`, and those in front of them.
    void release_lines_of(int source);
    void release_all();
    [[nodiscard]] bool holds_lines() const { return !held_.empty(); }

private:
    struct Held;
    using Position = std::list<Held>::iterator;

    /// The held lines with one text, in order. Those in front of `first` were released.
    struct Equal {
        std::vector<Position> lines;
        std::size_t first = 0;
    };
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };
    using Texts = std::unordered_map<std::string, Equal, Hash, std::equal_to<>>;

    struct Held {
        Texts::value_type* text;
        std::int64_t order;  ///< grows along the list, with gaps
        TimePoint since;
        TimePoint joined_at;  ///< by its latest source
        std::vector<int> sources;
    };

    struct Source {
        bool open = false;
        bool has_line = false;
        Position last = {};  ///< its latest held line, with has_line
    };

    [[nodiscard]] bool waits_for(const Source& source) const { return source.open && !source.has_line; }
    [[nodiscard]] Position insert(const Source& source, std::string_view text, TimePoint now);
    [[nodiscard]] std::int64_t order_before(Position next);
    void renumber();
    void release_first();
    void release_through(Position last);
    void release_complete();

    Sink sink_;
    std::list<Held> held_;
    Texts texts_;
    std::vector<Source> sources_;  ///< by number
    int awaited_ = 0;              ///< sources of which no line is held: they may join the first line
    std::size_t held_bytes_ = 0;
};

}  // namespace ddprun::agent
