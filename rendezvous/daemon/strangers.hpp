#pragma once
// Strangers: the connections of the control port that have not sent their first message yet. Bounds their number, and
// chooses the one that makes room for another (docs/design/028-own-user-only.md). Uses a socket only to look whether it
// has unread bytes. Owned by the ControlPort, on the io_context's one thread.

#include <boost/asio/ip/address.hpp>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.hpp"

namespace ddprun::daemon {

/// Strangers at one time, those of this host included.
inline constexpr std::size_t kMaxStrangers = 256;
/// Strangers at one time from one network of other hosts, and those that it has sent within kMinStay.
inline constexpr std::size_t kMaxStrangersPerNetwork = 32;
/// A stranger keeps its place for this time: the first if its network has at most kFewStrangers, else the second. An
/// agent sends its first message within a few round trips.
inline constexpr std::size_t kFewStrangers = 4;
inline constexpr std::chrono::milliseconds kStay{200};
inline constexpr std::chrono::milliseconds kMinStay{20};

/// Returns what strangers are counted by: the address, but of IPv6 the network of 64 bits, because one host can have
/// all of its addresses. A link-local address has no such network.
[[nodiscard]] std::string network_of(const boost::asio::ip::address& address);

class Strangers {
    struct Stranger {
        std::string network;
        bool local = false;
        TimePoint since;
        int socket = -1;
        std::function<void()> end = {};  ///< empty: it keeps its place
    };
    using List = std::list<Stranger>;  // the oldest one first

public:
    /// Place: holds one stranger's place, until it is destroyed or the stranger has been ended. May outlive Strangers.
    class Place {
    public:
        Place(std::shared_ptr<List> list, List::iterator stranger) : list_(std::move(list)), stranger_(stranger) {}
        Place(Place&& other) noexcept = default;
        Place& operator=(Place&&) = delete;
        ~Place() {
            if (list_) list_->erase(stranger_);
        }

        /// Lets the stranger be ended by a call of `end` while it has sent nothing that waits at `socket`.
        void allow_end(int socket, std::function<void()> end) {
            stranger_->socket = socket;
            stranger_->end = std::move(end);
        }
        void forbid_end() { stranger_->end = nullptr; }

    private:
        std::shared_ptr<List> list_;
        List::iterator stranger_;
    };

    /// Adds a stranger. If its network has too many then, and is not this host, ends the oldest of them that has had
    /// its time.
    [[nodiscard]] Place add(const std::string& network, bool local, TimePoint now);
    /// Returns whether there is room for one more, after ending one if necessary: of those that have had their time,
    /// the oldest one from the network that has most. Returns false if there is none.
    [[nodiscard]] bool make_room(TimePoint now);
    [[nodiscard]] std::size_t size() const;

private:
    static bool may_end(const Stranger& stranger, std::size_t in_network, TimePoint now);
    static bool end_first_idle(const std::vector<Stranger*>& strangers);

    /// A stranger that was ended stays in the list until its Place is destroyed, but has no network and counts no more.
    std::shared_ptr<List> list_ = std::make_shared<List>();
};

}  // namespace ddprun::daemon
