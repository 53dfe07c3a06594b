#pragma once
// Which servers take part and how each is started. A server that is not installed is absent, not a failure.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/store/process.hpp"
#include "tests/bench/store/protocol.hpp"

namespace ddprun::bench {

/// A running server.
struct Server {
    std::string name;
    std::shared_ptr<const Protocol> protocol;
    std::unique_ptr<Process> process;
    std::uint16_t port = 0;
    std::string version;  ///< empty for our own
};

struct ServerOptions {
    bool pin = true;           ///< servers on the second CPU, the client on the first
    std::string ddprund;       ///< empty: the one that was built beside the benchmark
    std::string before;        ///< another ddprund, to compare with; empty: none
    std::string torch_python;  ///< a python with a newer PyTorch; empty: none
};

class Servers {
public:
    explicit Servers(ServerOptions options);
    /// The names of all that could take part, the floors first.
    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
    /// A fresh one; null when this machine has no such server or it did not start; `why` says so.
    [[nodiscard]] std::unique_ptr<Server> start(const std::string& name, std::string& why) const;

private:
    ServerOptions options_;
    std::vector<std::string> names_;
};

}  // namespace ddprun::bench
