#pragma once
// LineBuffer: bytes in, whole lines out. Pure. Progress bars, which rewrite a line after '\r', come out bar by bar.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace ddprun::agent {

/// A longer line comes out in pieces.
inline constexpr std::size_t kMaxLineBytes = 64u << 10;

/// A piece of output that may be written without cutting a line: a line with its '\n', or one state of a progress bar.
struct Segment {
    std::string_view text;    ///< valid during the call that delivers it
    bool starts_line = true;  ///< false: goes on where the previous one ended
    friend bool operator==(const Segment&, const Segment&) = default;
};

class LineBuffer {
public:
    using Sink = std::function<void(const Segment&)>;

    /// What to do with a progress bar's latest state, which nothing ends yet.
    enum class Progress {
        kHold,  ///< keep it until the next state or line end: for files and pipes
        kShow,  ///< deliver it at once: for terminals
    };

    explicit LineBuffer(Progress progress) : progress_(progress) {}

    /// Delivers every segment that `bytes` completes. All segments together are the bytes, in order and unchanged.
    void feed(std::string_view bytes, const Sink& sink);
    /// Delivers what is left, when the stream has ended.
    void flush(const Sink& sink);

private:
    [[nodiscard]] std::size_t find_end(std::size_t begin);
    void deliver(std::string_view text, const Sink& sink);

    Progress progress_;
    std::string pending_;      ///< less than one segment between two calls
    std::size_t scanned_ = 0;  ///< how much of pending_ is known to hold no end
    char last_ = '\n';         ///< the last byte that was delivered
};

}  // namespace ddprun::agent
