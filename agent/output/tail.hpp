#pragma once
// Tail: keeps the last lines of a stream, for the verdict. Owned by WorkerStream. Pure.

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::agent {

class Tail {
public:
    static constexpr std::size_t kMaxLines = 20;
    static constexpr std::size_t kMaxLineBytes = 1000;  ///< of one line; the rest is cut

    void append(std::string_view bytes);

    /// Returns the lines as printable text, oldest first, with an unfinished last line. A progress bar counts as its
    /// latest state.
    [[nodiscard]] std::vector<std::string> lines() const;

    /// Returns the number of lines so far that began a Python traceback, whether its exception ends the process or is
    /// only logged.
    [[nodiscard]] std::size_t tracebacks() const { return tracebacks_; }

private:
    std::deque<std::string> finished_;
    std::string current_;
    std::size_t tracebacks_ = 0;
    bool rewrite_ = false;  ///< the latest byte was '\r': the next one, unless it is '\n', starts the line again
};

}  // namespace ddprun::agent
