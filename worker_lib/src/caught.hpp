#pragma once
// What has been thrown, in words: programs may throw anything.

#include <exception>
#include <string>

namespace ddp::detail {

/// Inside a handler.
[[nodiscard]] inline std::string caught() {
    try {
        throw;
    } catch (const std::exception& error) {
        return error.what();
    } catch (...) {
        return "an exception that is not derived from std::exception";
    }
}

}  // namespace ddp::detail
