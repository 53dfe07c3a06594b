#pragma once
// NextBackward: checks which kind of backward may begin next, as no_sync() and Join decide. The reducer's owner thread.

#include <string_view>

namespace ddp::detail {

class NextBackward {
public:
    /// Counts the NoSync guards: `change` is +1 when one begins, -1 when it ends.
    void add_no_sync_guards(int change) { no_sync_guards_ += change; }
    /// Returns whether a backward that the caller begins with this `sync` synchronises.
    [[nodiscard]] bool synchronises(bool sync) const { return sync && no_sync_guards_ == 0; }

    /// Requires each backward to be announced, until the last Join has ended. A new Join may begin before the old one
    /// ends.
    void join_begins() {
        if (joins_++ == 0 || expected_ == Expected::kNone) expected_ = Expected::kUnannounced;
    }
    void join_ends() {
        if (--joins_ == 0) expected_ = Expected::kAny;
    }
    /// Requires the next backward to be of this kind.
    void announce(bool sync) { expected_ = sync ? Expected::kSync : Expected::kNoSync; }
    /// Refuses further backwards, because no rank has a batch.
    void end_epoch() { expected_ = Expected::kNone; }
    /// Returns whether an announced backward has not begun.
    [[nodiscard]] bool is_owed() const { return expected_ == Expected::kSync || expected_ == Expected::kNoSync; }

    /// Returns what decides about backwards besides their calls: a Join, or a NoSync; empty: nothing does.
    [[nodiscard]] std::string_view decided_by() const {
        return joins_ > 0 ? "Join" : no_sync_guards_ > 0 ? "NoSync" : "";
    }

    /// Throws Error{InvalidArgument} if a Join is active and its more() has not announced a backward with this `sync`,
    /// or has returned false.
    void check(bool sync) const;
    /// Notes that the backward has begun, which uses up its announcement.
    void begin() {
        if (expected_ != Expected::kAny) expected_ = Expected::kUnannounced;
    }

private:
    enum class Expected { kAny, kSync, kNoSync, kUnannounced, kNone };

    int no_sync_guards_ = 0;
    int joins_ = 0;
    Expected expected_ = Expected::kAny;
};

}  // namespace ddp::detail
