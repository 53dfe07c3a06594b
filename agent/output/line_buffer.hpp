#pragma once
// LineBuffer: splits bytes into whole lines, and a progress bar, which rewrites its line after '\r', into its states.
// Owned by WorkerStream. Pure.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace ddprun::agent {

/// A longer line is delivered in pieces.
inline constexpr std::size_t kMaxLineBytes = 64u << 10;

/// A piece of output that may be written without cutting a line: a line with its '\n', several of them, or one state of
/// a progress bar.
struct Segment {
    std::string_view text;    ///< valid during the call that delivers it
    bool starts_line = true;  ///< false: continues the line of the previous one
    friend bool operator==(const Segment&, const Segment&) = default;
};

class LineBuffer {
public:
    using Sink = std::function<void(const Segment&)>;

    /// Selects the handling of the latest state of a progress bar, which has no end yet.
    enum class Progress {
        kHold,  ///< hold it until the next state or line end: for files and pipes
        kShow,  ///< deliver it at once: for terminals
    };

    /// Selects what one segment contains.
    enum class Unit {
        kLine,
        kLines,  ///< it may contain several whole lines without a '\r': faster, where each line need not be known
    };

    explicit LineBuffer(Progress progress) : progress_(progress) {}

    /// Delivers every segment that `bytes` completes. All segments together are the bytes that were fed, in order and
    /// unchanged.
    void feed(std::string_view bytes, const Sink& sink, Unit unit = Unit::kLine);
    /// Delivers the rest, which has no end: at the end of the stream, or because its line may be a prompt. Bytes that
    /// follow continue that line.
    void flush(const Sink& sink);
    /// Returns whether there are bytes that flush() would deliver.
    [[nodiscard]] bool has_rest() const { return !pending_.empty(); }

private:
    [[nodiscard]] std::size_t find_end(std::string_view text, std::size_t begin);
    [[nodiscard]] std::size_t scan(std::string_view text, const Sink& sink, Unit unit);
    void deliver(std::string_view text, const Sink& sink);

    Progress progress_;
    std::string pending_;      ///< less than one segment, between two calls
    std::size_t scanned_ = 0;  ///< this many bytes of pending_ contain no segment end
    std::size_t newline_ = 0;  ///< the first '\n' of the text from `scanned_` on, or a passed one
    std::size_t rewrite_ = 0;  ///< the same for '\r'
    char last_ = '\n';         ///< the latest byte that was delivered
};

}  // namespace ddprun::agent
