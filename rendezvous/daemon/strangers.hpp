#pragma once
// Strangers: the connections of the control port that have not sent their first message yet. Bounds their number, and
// chooses the one that makes room for another (docs/design/028-own-user-only.md). Knows no sockets but to look whether
// one has sent something. Owned by the ControlPort, on the io_context's one thread.

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "common/clock.hpp"

namespace ddprun::daemon {

/// Strangers at one time, those of this host included.
inline constexpr std::size_t kMaxStrangers = 256;
/// Strangers at one time from one address of another host.
inline constexpr std::size_t kMaxStrangersPerAddress = 32;
/// A stranger keeps its place for this time. An agent sends its first message within a few round trips.
inline constexpr std::chrono::milliseconds kStrangerStays{20};

class Strangers {
    struct Stranger {
        std::string address;
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

    /// Adds a stranger. If its address has too many then, and is not one of this host, ends the oldest of them.
    [[nodiscard]] Place add(const std::string& address, bool local, TimePoint now);
    /// Returns whether there is room for one more, after ending one if necessary: the oldest one from the address that
    /// has most. Returns false if that one has to be left some time.
    [[nodiscard]] bool make_room(TimePoint now);
    [[nodiscard]] std::size_t size() const;

private:
    bool end_oldest_from(const std::string& address, TimePoint now);

    /// A stranger that was ended stays in the list until its Place is destroyed, but has no address and counts no more.
    std::shared_ptr<List> list_ = std::make_shared<List>();
};

}  // namespace ddprun::daemon
