#pragma once
// Timeline: records the backwards and buckets of a process's reducers, for chrome://tracing or ui.perfetto.dev. It is
// enabled by DDP_TIMELINE=FILE. Each rank writes FILE with ".rank-N" (its rank in the world) before the extension, a
// new one in every generation. All reducers of the process share it, also those that follow one another.
//
// One row per reducer shows its backwards and the waits at their ends. Each bucket has an arrow from its launch to the
// end of its exchange. Times are of the host's clock, so that the files of ranks on one host fit together.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "common/mutex.hpp"
#include "ddp/work.hpp"

namespace ddp::detail {

/// Owns the file. Thread-safe.
class Timeline {
public:
    /// Returns a share for one reducer, whose destruction flushes the file. Null if DDP_TIMELINE is not set. Throws
    /// Error{System} naming the file that cannot be written, and Error{InvalidArgument} for a directory.
    [[nodiscard]] static std::shared_ptr<Timeline> from_environment(int rank);
    Timeline(const std::filesystem::path& file, int rank);
    Timeline(const Timeline&) = delete;
    Timeline& operator=(const Timeline&) = delete;

    /// Returns the row of one more reducer, from 0.
    [[nodiscard]] int add_row() EXCLUDES(mutex_);
    /// Draws a span of time in a row.
    void span(int row, std::string_view name, ddprun::TimePoint begin, ddprun::TimePoint end);
    /// The bucket that an arrow shows.
    struct Bucket {
        int row = 0;
        std::uint64_t step = 0;
        std::size_t index = 0;
        std::size_t bytes = 0;
    };
    /// Draws an arrow for a bucket.
    void bucket(const Bucket& what, ddprun::TimePoint begin, ddprun::TimePoint end);
    /// Writes everything so far. The file is valid JSON then, and a rank that is killed later loses nothing of it.
    void flush() EXCLUDES(mutex_);

private:
    [[nodiscard]] double microseconds(ddprun::TimePoint time) const;
    void write(const std::string& event) EXCLUDES(mutex_);

    const int rank_;
    const double offset_us_;  ///< from our clock to the host's
    ddprun::Mutex mutex_;
    int rows_ GUARDED_BY(mutex_) = 0;
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_ GUARDED_BY(mutex_);
};

/// One reducer's row in the timeline of its process. Every call does nothing without a timeline.
class TimelineRow {
public:
    TimelineRow() = default;
    /// Throws as Timeline::from_environment.
    [[nodiscard]] static TimelineRow from_environment(int rank);

    /// Draws a backward and, when it synchronised, its wait; then flushes the file.
    void backward(bool sync, ddprun::TimePoint began, ddprun::TimePoint wait_began, ddprun::TimePoint ended) const;
    /// Draws an arrow from `launched` to the end of `work`.
    void follow(Work& work, Timeline::Bucket what, ddprun::TimePoint launched) const {
        if (timeline_) draw_when_done(work, what, launched);
    }

private:
    void draw_when_done(Work& work, Timeline::Bucket what, ddprun::TimePoint launched) const;

    std::shared_ptr<Timeline> timeline_;
    int row_ = 0;
};

/// Returns the file of one rank: trace.rank-3.json for trace.json.
[[nodiscard]] std::filesystem::path timeline_file(const std::filesystem::path& file, int rank);

}  // namespace ddp::detail
