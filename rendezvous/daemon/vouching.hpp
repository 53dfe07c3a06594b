#pragma once
// Vouching: holds clients of the stores that have connected from other hosts until the agent there has confirmed that
// they belong to the user of the job (--store-vouch, docs/design/028). Owned by Sessions, on the io_context's one
// thread.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "common/clock.hpp"
#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/daemon/stores.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::daemon {

/// The longest time for which a client is held without an answer. An agent's connection may break meanwhile.
inline constexpr std::chrono::seconds kVouchTime{5};

class Vouching {
public:
    using Ask = std::function<void(const protocol::NodeId&, const protocol::VouchRequest&)>;
    using Closed = std::function<void(const std::string& peer, const std::string& why)>;

    /// `stores` outlives this object. `ask` sends a request to a node, or loses it; `closed` logs a closed connection.
    /// `max_of_node`: clients of one node that are held.
    Vouching(GenerationStores& stores, Ask ask, Closed closed, std::size_t max_of_node = 4096)
        : stores_(stores), ask_(std::move(ask)), closed_(std::move(closed)), max_of_node_(max_of_node) {}

    /// Holds a client of the store of `generation`, and asks `node`, whose agent is on its host.
    void hold(UniqueFd socket, Generation generation, const protocol::NodeId& node, TimePoint now);
    /// Passes the client on to its store, or closes it, as the node has answered.
    void answer(const protocol::NodeId& node, const protocol::Vouch& vouch);
    /// Asks again for those that have no answer, and closes those that are held for kVouchTime.
    void remind(TimePoint now);
    void close() { held_.clear(); }

private:
    struct Held {
        UniqueFd socket;
        Generation generation{};
        protocol::NodeId node;
        std::string peer;  ///< for the log
        protocol::VouchRequest request;
        TimePoint since;
        TimePoint asked_at;
    };
    void forget(std::map<std::uint64_t, Held>::iterator held);

    GenerationStores& stores_;
    Ask ask_;
    Closed closed_;
    const std::size_t max_of_node_;
    std::map<std::uint64_t, Held> held_;              ///< by the number of the request
    std::map<protocol::NodeId, std::size_t> counts_;  ///< of held_, by node
    std::uint64_t last_request_ = 0;
};

}  // namespace ddprun::daemon
