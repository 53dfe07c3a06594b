#include "worker_lib/src/nccl/communicator.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/cuda/waiting.hpp"
#include "worker_lib/src/nccl/unique_id.hpp"

namespace ddp::detail {
namespace {

using ddprun::Clock;
using ddprun::TimePoint;

/// The result of the thread that starts a communicator. Shared, as that thread may return after the caller has given
/// up.
struct Start {
    ncclComm_t comm = nullptr;
    ncclResult_t result = ncclInProgress;
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

}  // namespace

bool starts_nonblocking(int nccl_version, const std::optional<std::string>& setting) {
    constexpr int kFirst = 22700;
    return setting ? *setting == "0" : nccl_version >= kFirst;
}

Communicator::Communicator(const GpuApi& api, const GroupSpec& spec, std::shared_ptr<GroupDevice> device,
                           const ncclUniqueId& id, TimePoint deadline, const NcclLimits& limits)
    : api_(api),
      device_(std::move(device)),
      limits_(limits),
      blocks_(!starts_nonblocking(api.nccl_version, process_variables()("NCCL_COMM_BLOCKING"))) {
    const int size = static_cast<int>(spec.members.size());
    const auto start = std::make_shared<Start>();
    const auto work = [start, nccl = api.nccl, device = device_, size, id, rank = spec.rank, blocks = blocks_] {
        ncclConfig_t config;
        config.blocking = blocks ? 1 : 0;
        if (device->begin_thread() != CUDA_SUCCESS) {
            start->result = ncclUnhandledCudaError;
            return;
        }
        start->result = nccl.comm_init_rank_config(&start->comm, size, id, rank, &config);
    };
    std::optional<ncclResult_t> result = ncclInProgress;
    if (run_bounded(work, deadline)) {
        comm_ = start->comm;
        result = settle(start->result, deadline);
    }
    if (result == ncclSuccess) return;

    const std::string why =
        error_text(result.value_or(ncclInternalError));  // before the abort, which may set an error of its own
    (void)abort();
    if (result == ncclInProgress) {
        throw Error(ErrorCode::Timeout,
                    fmt::format("{}: all ranks have joined, but NCCL did not connect them in time. Set NCCL_DEBUG=INFO "
                                "to see what it waits for",
                                own_rank_text(spec)));
    }
    const bool advised = why.find("NCCL_DEBUG") != std::string::npos;  // in some of NCCL's texts
    throw Error(ErrorCode::System,
                fmt::format("{}: NCCL could not start on CUDA device {}: {}{}", own_rank_text(spec), device_->index(),
                            why, advised ? "" : ". Set NCCL_DEBUG=INFO to see why"));
}

Communicator::~Communicator() { (void)abort(); }

std::optional<ncclResult_t> Communicator::call(const Call& function, TimePoint deadline) {
    ncclResult_t result = ncclSuccess;
    {
        const ddprun::Lock lock(inside_);
        const ncclComm_t comm = comm_;
        if (comm == nullptr || given_up_) return std::nullopt;
        result = function(comm);
    }
    return settle(result, deadline);
}

/// Polls until the call is no longer in progress. The lock is released between two polls, so that an abort need not
/// wait for the launch.
std::optional<ncclResult_t> Communicator::settle(ncclResult_t result, TimePoint deadline) {
    for (Backoff backoff; result == ncclInProgress && Clock::now() < deadline; backoff.pause()) {
        const ddprun::Lock lock(inside_);
        const ncclComm_t comm = comm_;
        if (comm == nullptr || given_up_) return std::nullopt;
        if (const ncclResult_t asked = api_.nccl.comm_get_async_error(comm, &result); asked != ncclSuccess)
            return asked;
    }
    return result;
}

ncclResult_t Communicator::async_error() {
    if (!inside_.try_lock()) return ncclSuccess;
    const ddprun::Lock lock(inside_, std::adopt_lock);
    const ncclComm_t comm = comm_;
    if (comm == nullptr) return ncclSuccess;
    ncclResult_t error = ncclSuccess;
    const ncclResult_t asked = api_.nccl.comm_get_async_error(comm, &error);
    if (asked != ncclSuccess) return asked;
    return error == ncclInProgress ? ncclSuccess : error;  // another thread's call is being launched: no error
}

/// Takes the communicator out of use. NCCL demands that no other thread is inside when it is aborted. Threads leave a
/// non-blocking one at once. They may stay in a blocking one, where abort is the documented way to get them out.
ncclComm_t Communicator::take() {
    constexpr auto kTimeout = std::chrono::seconds(1);
    const TimePoint limit = Clock::now() + kTimeout;
    for (Backoff backoff; Clock::now() < limit; backoff.pause()) {
        if (!inside_.try_lock()) continue;
        const ddprun::Lock lock(inside_, std::adopt_lock);
        return comm_.exchange(nullptr);
    }
    return comm_.exchange(nullptr);
}

bool Communicator::abort() {
    const ncclComm_t comm = take();
    if (comm == nullptr) return true;
    const auto work = [nccl = api_.nccl, device = device_, comm] {
        (void)device->begin_thread();  // if it fails, so does the abort, and there is no other way
        (void)nccl.comm_abort(comm);
    };
    return run_bounded(work, Clock::now() + limits_.abort_timeout);
}

bool Communicator::finish() {
    const ncclComm_t comm = take();
    if (comm == nullptr) return true;
    const TimePoint deadline = Clock::now() + limits_.finish_timeout;
    const auto work = [nccl = api_.nccl, device = device_, comm, deadline] {
        (void)device->begin_thread();
        finalize(nccl, comm, deadline);
    };
    return run_bounded(work, deadline + limits_.abort_timeout);
}

std::string Communicator::error_text(ncclResult_t result) const {
    const char* last = api_.nccl.get_last_error(nullptr);  // of any communicator of this process
    const std::string_view detail = last != nullptr ? last : "";
    return fmt::format("{}{}{}{}", api_.nccl.get_error_string(result), detail.empty() ? "" : " (", detail,
                       detail.empty() ? "" : ")");
}

}  // namespace ddp::detail
