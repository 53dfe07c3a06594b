#pragma once
// DialPlan: decides after each try to reach a daemon whether another one follows, when, and for how long. Pure; used by
// dial(), and by simulated nodes.

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "rendezvous/client/pace.hpp"

namespace ddprun::client {

class DialPlan {
public:
    enum class Next {
        kTryAgain,  ///< after next_pause()
        kGiveUp,    ///< the time is over, or a daemon that ran has ended
        kForeign,   ///< a server that is not our daemon, or does not accept this node, has answered
    };

    /// `deadline`: of the last try.
    DialPlan(TimePoint deadline, Pace pace)
        : deadline_(deadline), pace_(pace), try_time_(std::min(pace.first_try_time, pace.try_time)) {}

    /// Begins a try. Returns how long each of its addresses may take.
    std::chrono::milliseconds begin_try(TimePoint now) {
        inconclusive_ = ++tries_ > 1 && deadline_ - now < kConclusiveTime;
        return std::exchange(try_time_, std::min(2 * try_time_, pace_.try_time));
    }
    /// Takes the error of the try.
    [[nodiscard]] Next failed(const Error& error, TimePoint now) {
        if (!inconclusive_ || error.code != Errc::kTimeout) cause_ = error;
        if (is_foreign(cause_)) return Next::kForeign;
        is_gone_ = now >= pace_.refused_until && cause_.code == boost::system::errc::connection_refused;
        return is_gone_ || now + pause_ >= deadline_ ? Next::kGiveUp : Next::kTryAgain;
    }
    /// Returns the time until the next try.
    std::chrono::milliseconds next_pause() { return std::exchange(pause_, std::min(2 * pause_, pace_.max_pause)); }

    /// Returns whether a server that is not our daemon, or does not accept this node, has answered.
    [[nodiscard]] static bool is_foreign(const Error& error) {
        return error.code == Errc::kRefused || error.code == Errc::kMismatch || error.code == Errc::kInUse ||
               error.code == Errc::kUntrusted;
    }
    /// Returns the error of a try at several addresses, of which `earlier` is the error so far and `later` that of the
    /// next address: that of a server which has answered, else of one that is silent, else `later`. A daemon has one of
    /// the addresses of its host, so a refusal at another one is not its end.
    [[nodiscard]] static Error error_of_try(Error earlier, Error later) {
        const bool has_server = earlier.code == Errc::kTimeout || earlier.code == Errc::kClosed;
        const bool is_refused = later.code == boost::system::errc::connection_refused;
        return is_foreign(earlier) || (has_server && is_refused) ? std::move(earlier) : std::move(later);
    }
    /// Returns whether the newest try has shown that a daemon which ran has ended.
    [[nodiscard]] bool is_gone() const { return is_gone_; }
    [[nodiscard]] int tries() const { return tries_; }
    /// Returns the error of the newest try that says something about the host.
    [[nodiscard]] const Error& cause() const { return cause_; }
    /// Replaces the cause by a better one.
    void explain(Error cause) { cause_ = std::move(cause); }

private:
    static constexpr std::chrono::milliseconds kFirstPause{50};
    /// A try that timed out in less than this says nothing about the host.
    static constexpr std::chrono::milliseconds kConclusiveTime{1000};

    TimePoint deadline_;
    Pace pace_;
    std::chrono::milliseconds try_time_;
    std::chrono::milliseconds pause_ = kFirstPause;
    int tries_ = 0;
    bool inconclusive_ = false;
    bool is_gone_ = false;
    Error cause_;
};

}  // namespace ddprun::client
