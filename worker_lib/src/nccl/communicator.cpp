#include "worker_lib/src/nccl/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/exit_codes.hpp"
#include "common/mutex.hpp"
#include "common/text/number.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/cuda/waiting.hpp"
#include "worker_lib/src/nccl/unique_id.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {
namespace {

using ddprun::Clock;
using ddprun::TimePoint;

std::string last_error(const NcclApi& nccl) {
    const char* const text = nccl.get_last_error(nullptr);  // of any communicator of this process
    return text != nullptr ? text : "";
}

/// Returns NCCL's text, with its last error unless that is older than the communicator.
std::string text_of(const NcclApi& nccl, ncclResult_t result, const std::string& earlier) {
    const std::string last = last_error(nccl);
    const std::string_view text = nccl.get_error_string(result);
    return last.empty() || last == earlier ? std::string(text) : fmt::format("{} ({})", text, last);
}

/// A communicator while a thread of its own connects it, which may return after the caller has given up.
class Connecting {
public:
    Connecting(const GpuApi& api, std::shared_ptr<GroupDevice> device, std::string earlier_error)
        : nccl_(api.nccl), device_(std::move(device)), earlier_error_(std::move(earlier_error)) {}

    /// Connects, until the caller gives up. Then, or when NCCL fails, it aborts the communicator.
    void run(int size, std::vector<ncclUniqueId> ids, int rank, bool blocking) {
        ncclConfig_t config;
        config.blocking = blocking ? 1 : 0;
        ncclComm_t comm = nullptr;
        ncclResult_t result = ncclUnhandledCudaError;
        if (device_->begin_thread() == CUDA_SUCCESS)
            result = ids.size() == 1 ? nccl_.comm_init_rank_config(&comm, size, ids[0], rank, &config)
                                     : nccl_.comm_init_rank_scalable(&comm, size, rank, static_cast<int>(ids.size()),
                                                                     ids.data(), &config);
        for (Backoff backoff; result == ncclInProgress && !is_given_up(); backoff.pause()) {
            if (const ncclResult_t asked = nccl_.comm_get_async_error(comm, &result); asked != ncclSuccess)
                result = asked;
        }
        std::string text = text_of(nccl_, result, earlier_error_);  // before the abort, which may set one of its own
        {
            const ddprun::Lock lock(mutex_);
            result_ = result;
            text_ = std::move(text);
            if (result == ncclSuccess && !given_up_) connected_ = std::exchange(comm, nullptr);
            changed_.notify_all();
        }
        if (comm != nullptr) (void)nccl_.comm_abort(comm);
        const ddprun::Lock lock(mutex_);
        ended_ = true;
        changed_.notify_all();
    }
    /// Returns NCCL's result; ncclInProgress at `until`.
    [[nodiscard]] ncclResult_t await(TimePoint until) {
        const ddprun::Lock lock(mutex_);
        while (result_ == ncclInProgress && changed_.wait_until(mutex_, until)) {
        }
        return result_;
    }
    /// Returns the communicator; null: it has failed, or is not connected, and will be aborted. Waits for that until
    /// `until`.
    [[nodiscard]] ncclComm_t take(TimePoint until) {
        const ddprun::Lock lock(mutex_);
        given_up_ = true;
        while (connected_ == nullptr && !ended_ && changed_.wait_until(mutex_, until)) {
        }
        return std::exchange(connected_, nullptr);
    }
    [[nodiscard]] std::string error_text() {
        const ddprun::Lock lock(mutex_);
        return text_;
    }

private:
    [[nodiscard]] bool is_given_up() {
        const ddprun::Lock lock(mutex_);
        return given_up_;
    }

    const NcclApi nccl_;
    const std::shared_ptr<GroupDevice> device_;
    const std::string earlier_error_;
    ddprun::Mutex mutex_;
    ddprun::Condition changed_;
    ncclResult_t result_ GUARDED_BY(mutex_) = ncclInProgress;
    std::string text_ GUARDED_BY(mutex_);
    ncclComm_t connected_ GUARDED_BY(mutex_) = nullptr;
    bool given_up_ GUARDED_BY(mutex_) = false;
    bool ended_ GUARDED_BY(mutex_) = false;
};

/// Waits until the peers finish their communicators too, then frees this one. Aborts it when they do not, or when it
/// has failed.
void finalize(const NcclApi& nccl, ncclComm_t comm, TimePoint deadline) {
    ncclResult_t result = nccl.comm_finalize(comm);
    for (Backoff backoff; result == ncclInProgress && Clock::now() < deadline; backoff.pause()) {
        if (nccl.comm_get_async_error(comm, &result) != ncclSuccess) break;
    }
    // Their results do not matter: the communicator is freed in any case.
    if (result == ncclSuccess) {
        (void)nccl.comm_destroy(comm);
    } else {
        (void)nccl.comm_abort(comm);
    }
}

/// Stops what is in flight, and frees the communicator. May never return.
void abort_in_order(const NcclApi& nccl, ncclComm_t comm, TimePoint until) {
    if (nccl.comm_revoke != nullptr && nccl.comm_revoke(comm, 0) == ncclSuccess) {
        // Asks all kernels to stop, and frees nothing. The abort is safe when they have.
        ncclResult_t state = ncclInProgress;
        for (Backoff backoff; state == ncclInProgress && Clock::now() < until; backoff.pause())
            if (nccl.comm_get_async_error(comm, &state) != ncclSuccess) break;
    }
    (void)nccl.comm_abort(comm);
}

}  // namespace

void end_process(const std::string& line) {
    // stderr may be a pipe that is full, or locked by a thread that waits for it.
    const auto print = [text = fmt::format("[ddp] {}\n", line)] { std::fputs(text.c_str(), stderr); };
    (void)run_bounded(print, Clock::now() + std::chrono::seconds(1));
    std::_Exit(ddprun::exit_code::kDeviceStuck);
}

NcclLimits read_limits(const Variables& variables) {
    constexpr int kMaxSeconds = 3600;
    NcclLimits limits;
    const std::string text = variables("DDPRUN_NCCL_ABORT_TIMEOUT").value_or("");
    if (text.empty()) return limits;
    const auto seconds = ddprun::parse_number<int>(text);
    if (!seconds || *seconds < 1 || *seconds > kMaxSeconds) {
        throw Error(ErrorCode::Environment,
                    fmt::format("DDPRUN_NCCL_ABORT_TIMEOUT is '{}', expected a whole number of seconds from 1 to {}. "
                                "Unset it to use the default, 1",
                                text, kMaxSeconds));
    }
    limits.abort_timeout = std::chrono::seconds(*seconds);
    return limits;
}

bool starts_nonblocking(int nccl_version, const std::optional<std::string>& setting) {
    constexpr int kFirst = 22700;
    return setting ? *setting == "0" : nccl_version >= kFirst;
}

ErrorCode error_code_of(ncclResult_t result) {
    if (result == ncclTimeout) return ErrorCode::Timeout;
    return result == ncclRemoteError ? ErrorCode::PeerLost : ErrorCode::System;
}

Communicator::Communicator(const GpuApi& api, const GroupSpec& spec, std::shared_ptr<GroupDevice> device,
                           std::vector<ncclUniqueId> ids, const Peers& peers, TimePoint deadline,
                           const NcclLimits& limits)
    : api_(api), device_(std::move(device)), limits_(limits), earlier_error_(last_error(api.nccl)) {
    const bool blocking = !starts_nonblocking(api.nccl_version, process_variables()("NCCL_COMM_BLOCKING"));
    const auto connecting = std::make_shared<Connecting>(api, device_, earlier_error_);
    start_signal_masked_thread("ddp-bounded", [connecting, size = static_cast<int>(spec.members.size()),
                                               ids = std::move(ids), rank = spec.rank, blocking]() mutable {
        connecting->run(size, std::move(ids), rank, blocking);
    }).detach();
    ncclResult_t result = ncclInProgress;
    std::optional<Error> losses;
    while (result == ncclInProgress && !losses && Clock::now() < deadline) {
        result = connecting->await(std::min(deadline, Clock::now() + kLookInterval));
        if (result == ncclInProgress) losses = peers.losses();
    }
    comm_ = connecting->take(Clock::now() + limits_.call_wait());
    if (comm_ != nullptr) return;

    if (result != ncclInProgress && peers.await_loss(kEndingTime)) losses = peers.losses();
    const std::string why = connecting->error_text();
    if (losses) {
        throw Error(ErrorCode::PeerLost,
                    fmt::format("{}: NCCL could not start: {}", own_rank_text(spec), losses->what()),
                    losses->culprits());
    }
    if (result == ncclInProgress) {
        throw Error(ErrorCode::Timeout,
                    fmt::format("{}: all ranks have joined, but NCCL did not connect them in time. Set NCCL_DEBUG=INFO "
                                "to see what it waits for",
                                own_rank_text(spec)));
    }
    const bool advised = why.find("NCCL_DEBUG") != std::string::npos;  // in some of NCCL's texts
    throw Error(error_code_of(result),
                fmt::format("{}: NCCL could not start on CUDA device {}: {}{}", own_rank_text(spec), device_->index(),
                            why, advised ? "" : ". Set NCCL_DEBUG=INFO to see why"));
}

Communicator::~Communicator() {
    graphs_.free_all();
    const ncclComm_t comm = std::exchange(comm_, nullptr);
    if (comm == nullptr) return;
    const auto work = [nccl = api_.nccl, device = device_, comm] {
        (void)device->begin_thread();
        (void)nccl.comm_abort(comm);
    };
    (void)run_bounded(work, Clock::now() + limits_.call_wait());
}

ncclResult_t Communicator::state() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = api_.nccl.comm_get_async_error(comm_, &state);
    return asked != ncclSuccess ? asked : state;
}

void Communicator::abort() {
    graphs_.free_all();
    if (const ncclComm_t comm = std::exchange(comm_, nullptr); comm != nullptr)
        abort_in_order(api_.nccl, comm, Clock::now() + limits_.abort_timeout / 2);
}

void Communicator::finish(bool in_order) {
    graphs_.free_all();
    const ncclComm_t comm = std::exchange(comm_, nullptr);
    if (comm == nullptr) return;
    const TimePoint deadline = Clock::now() + (in_order ? limits_.finish_timeout : ddprun::Duration::zero());
    const auto work = [nccl = api_.nccl, device = device_, comm, in_order, deadline] {
        (void)device->begin_thread();
        if (in_order) {
            finalize(nccl, comm, deadline);
        } else {
            (void)nccl.comm_abort(comm);
        }
    };
    (void)run_bounded(work, deadline + limits_.call_wait());
}

std::string Communicator::error_text(ncclResult_t result) const { return text_of(api_.nccl, result, earlier_error_); }

}  // namespace ddp::detail
