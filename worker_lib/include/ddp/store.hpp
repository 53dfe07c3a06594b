#pragma once
// Store: the key-value store through which the ranks of one generation find each other. An interface of ours, so that
// the library does not depend on how the values travel. Implementations may be called from any thread.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddp {

class Store {
public:
    virtual ~Store() = default;
    virtual void set(std::string_view key, std::string_view value) = 0;
    /// Waits until the key exists. Throws Error{Timeout} naming the key.
    [[nodiscard]] virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
    /// Adds to a decimal counter that starts at 0 and returns the sum.
    virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;
    /// This host's numeric address towards the store: the one to give to peers.
    [[nodiscard]] virtual std::string local_address() const = 0;
};

}  // namespace ddp
