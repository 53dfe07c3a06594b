#pragma once
// Tail: the last lines of a stream, for the verdict. Pure.

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

    /// Printable text, oldest first, an unfinished last line included; of a progress bar its latest state.
    [[nodiscard]] std::vector<std::string> lines() const;

    /// How many lines so far began a Python traceback: of an exception that ends the process, or of one that is only
    /// told of.
    [[nodiscard]] std::size_t tracebacks() const { return tracebacks_; }

private:
    std::deque<std::string> finished_;
    std::string current_;
    std::size_t tracebacks_ = 0;
    bool rewrite_ = false;  ///< a '\r' came: the next byte, unless it is '\n', starts the line anew
};

}  // namespace ddprun::agent
