#pragma once
// Timeline: what the reducers of a process did and when, for chrome://tracing or ui.perfetto.dev. Asked for by
// DDP_TIMELINE=FILE; each rank writes FILE with ".rank-N" (of the world) before its extension, anew in every
// generation, by all reducers of the process, whether they live together or one after the other. Thread-safe.
//
// One row for each reducer shows its backwards and the waits at their ends, and each bucket has an arrow of its own
// from its launch to the end of its exchange. Times are of the host's clock, so that the files of ranks on one host fit
// together.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "common/clock.hpp"

namespace ddp::detail {

class Timeline {
public:
    /// For one reducer, whose end flushes it. Null when DDP_TIMELINE is not set. Throws Error{System} naming the file
    /// that cannot be written.
    [[nodiscard]] static std::shared_ptr<Timeline> from_environment(int rank);
    Timeline(const std::filesystem::path& file, int rank);
    Timeline(const Timeline&) = delete;
    Timeline& operator=(const Timeline&) = delete;

    /// For one more reducer; from 0.
    [[nodiscard]] int add_row();
    void span(int row, std::string_view name, ddprun::TimePoint begin, ddprun::TimePoint end);
    struct Bucket {
        int row = 0;
        std::uint64_t step = 0;
        std::size_t index = 0;
        std::size_t bytes = 0;
    };
    void bucket(const Bucket& what, ddprun::TimePoint begin, ddprun::TimePoint end);
    /// Everything so far is in the file after it, which is whole: a rank that is killed later loses nothing of it.
    void flush();

private:
    [[nodiscard]] double microseconds(ddprun::TimePoint time) const;
    void write(const std::string& event);

    const int rank_;
    const double offset_us_;  ///< of the host's clock to ours
    std::mutex mutex_;
    int rows_ = 0;
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// trace.json of rank 3: trace.rank-3.json.
[[nodiscard]] std::filesystem::path timeline_file(const std::filesystem::path& file, int rank);

}  // namespace ddp::detail
