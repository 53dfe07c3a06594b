#pragma once
// JsonReader: reads the small part of JSON that headers of safetensors files have. Own code, because the worker library
// contains this room and must not need Boost.JSON's library. Pure.

#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun::checkpoint {

/// Reads strings, whole numbers and signs from the front of a text, and skips white space before each. After the first
/// error all reads return empty values. It never takes more memory than the text has.
class JsonReader {
public:
    explicit JsonReader(std::string_view text) : rest_(text), bytes_(text.size()) {}

    /// Returns whether the next character is `sign`, and removes it then.
    [[nodiscard]] bool accept(char sign);
    void expect(char sign);
    /// Returns the next string, with its escapes resolved. It has to be valid UTF-8.
    [[nodiscard]] std::string string();
    /// Returns the next number, which has to be a whole one without a sign, below 2^64.
    [[nodiscard]] std::uint64_t number();
    /// Fails unless only white space is left.
    void expect_end();
    void fail(std::string_view what);
    [[nodiscard]] bool good() const { return error_.empty(); }
    /// Returns the first error: "at byte 17: expected ':'"; empty: there was none.
    [[nodiscard]] const std::string& error() const { return error_; }

private:
    void skip_space();
    void add_escape(std::string& text);
    [[nodiscard]] unsigned hex_digits();

    std::string_view rest_;
    std::size_t bytes_;
    std::string error_;
};

}  // namespace ddprun::checkpoint
