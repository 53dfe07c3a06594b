#pragma once
// A group of NCCL backends on a FakeGpu, one thread per rank. Only a test's own thread may assert in Catch2 2: what
// happens on a rank is returned and checked there.

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/fake_nccl.hpp"
#include "worker_lib/src/bootstrap/local_store.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/native/native.hpp"
#include "worker_lib/src/nccl/backend.hpp"

namespace ddp::test {

using namespace std::chrono_literals;

/// Submits an operation, or a batch, without a flight record.
inline std::shared_ptr<detail::WorkState> submit(detail::BackendImpl& backend, detail::Operation operation) {
    detail::OperationRecord none;
    return backend.submit(std::move(operation), none);
}
inline std::shared_ptr<detail::WorkState> transfer(detail::BackendImpl& backend, detail::TransferList batch) {
    detail::TransferRecord none;
    return backend.transfer(std::move(batch), none).start();
}

/// The outcome of one rank: nothing thrown, or the error.
struct Outcome {
    bool failed = false;
    ErrorCode code{};
    std::string text;
    std::vector<int> culprits;
};

inline Outcome outcome_of(const std::function<void()>& action) {
    try {
        action();
        return {};
    } catch (const Error& error) {
        return {true, error.code(), error.what(), error.culprits()};
    }
}

struct FakeGroup {
    explicit FakeGroup(int ranks) : size(ranks) {}

    int size;
    FakeGpu gpu;
    std::shared_ptr<Store> store = detail::make_local_store();
    std::mutex mutex;
    std::vector<std::string> process_ends;  ///< the last lines of this process, which goes on
    detail::NcclLimits limits{
        .abort_timeout = 5s, .finish_timeout = 5s, .end_process = [this](const std::string& line) {
            const std::lock_guard lock(mutex);
            process_ends.push_back(line);
            gpu.let_go();
        }};
    ddprun::Duration default_timeout = 20s;
    ddprun::Duration init_timeout = 20s;
    int nccl_version = 22809;
    int first_device = 0;
    bool has_control_group = false;  ///< as the groups of a Context

    [[nodiscard]] detail::GroupSpec spec(int rank) const {
        detail::GroupSpec spec;
        spec.name = "world";
        spec.rank = rank;
        spec.members.resize(static_cast<std::size_t>(size));
        std::iota(spec.members.begin(), spec.members.end(), 0);
        spec.store = store;
        spec.default_timeout = default_timeout;
        spec.init_timeout = init_timeout;
        spec.device = first_device + rank;
        if (has_control_group) spec.make_control_backend = detail::make_native_backend;
        return spec;
    }

    [[nodiscard]] std::unique_ptr<detail::BackendImpl> backend(int rank) { return backend(spec(rank)); }
    [[nodiscard]] std::unique_ptr<detail::BackendImpl> backend(const detail::GroupSpec& spec) {
        return detail::make_nccl_backend(spec, gpu.api(nccl_version), limits);
    }
    /// The backends of all ranks.
    using Backends = std::vector<std::unique_ptr<detail::BackendImpl>>;
    [[nodiscard]] Backends backends() { return backends("world", store); }
    /// The same for another group of the same ranks and devices.
    [[nodiscard]] Backends backends(const std::string& name, const std::shared_ptr<Store>& its_store) {
        std::vector<std::future<std::unique_ptr<detail::BackendImpl>>> made;
        for (int rank = 0; rank < size; ++rank) {
            made.push_back(std::async(std::launch::async, [&, rank] {
                detail::GroupSpec its_spec = spec(rank);
                its_spec.name = name;
                its_spec.store = its_store;
                return backend(its_spec);
            }));
        }
        Backends all;
        for (auto& one : made) all.push_back(one.get());
        return all;
    }
    [[nodiscard]] std::vector<std::string> last_lines() {
        const std::lock_guard lock(mutex);
        return process_ends;
    }

    /// The same as a program sees it.
    [[nodiscard]] ProcessGroup world(int rank) { return std::move(*detail::make_group(spec(rank), backend(rank))); }

    /// Runs `body` once per rank, each on its own thread, and collects how they ended.
    std::vector<Outcome> run(const std::vector<int>& ranks, const std::function<void(int)>& body) {
        std::vector<std::future<Outcome>> threads;
        for (int rank : ranks) {
            threads.push_back(
                std::async(std::launch::async, [&body, rank] { return outcome_of([&] { body(rank); }); }));
        }
        std::vector<Outcome> outcomes;
        for (auto& thread : threads) outcomes.push_back(thread.get());
        return outcomes;
    }
    std::vector<Outcome> run(const std::function<void(int rank, detail::BackendImpl&)>& body) {
        return run(spec(0).members, [&](int rank) {
            const auto made = backend(rank);
            body(rank, *made);
        });
    }
    std::vector<Outcome> run_worlds(const std::function<void(ProcessGroup&)>& body) {
        return run(spec(0).members, [&](int rank) {
            ProcessGroup made = world(rank);
            body(made);
        });
    }
    /// Returns what `check` finds wrong on each rank, and errors, as one text.
    std::string complaints(const std::function<std::string(ProcessGroup&)>& check) {
        std::vector<std::string> found(static_cast<std::size_t>(size));
        std::string all;
        for (const Outcome& outcome :
             run_worlds([&](ProcessGroup& group) { found[static_cast<std::size_t>(group.rank())] = check(group); }))
            all += outcome.text;
        for (const std::string& text : found) all += text;
        return all;
    }
};

inline void require_success(const std::vector<Outcome>& outcomes) {
    for (const Outcome& outcome : outcomes) REQUIRE(outcome.text == "");
}

/// Checks that the group has returned everything of its device.
inline void require_nothing_left(FakeGroup& group) {
    const auto counts = group.gpu.counts();
    CHECK(counts.streams == 0);
    CHECK(counts.events == 0);
    CHECK(counts.blocks == 0);
    CHECK(counts.pinned == 0);
    CHECK(counts.retained == 0);
    CHECK(counts.frees_elsewhere == 0);
}

inline detail::Operation operation(detail::OpKind kind, std::uint64_t seq, ddprun::Duration timeout = 20s) {
    detail::Operation made;
    made.kind = kind;
    made.seq = seq;
    made.deadline = ddprun::Clock::now() + timeout;
    return made;
}

/// The fake's device memory is host memory: any vector will do.
template <typename T>
Buffer device_buffer(std::vector<T>& values) {
    return {values.data(), values.size(), dtype_of<T>, Device::Cuda};
}

template <typename T>
detail::Operation all_reduce(std::vector<T>& values, ReduceOp op, std::uint64_t seq = 1,
                             ddprun::Duration timeout = 20s) {
    detail::Operation made = operation(detail::OpKind::kAllReduce, seq, timeout);
    made.buffer = device_buffer(values);
    made.reduce_op = op;
    return made;
}

inline void wait_host(detail::WorkState& work) { work.detail::WorkState::wait(); }

/// Polls until `condition` holds, for 10 s at most.
template <typename Condition>
bool eventually(Condition condition) {
    const auto limit = ddprun::Clock::now() + 10s;
    while (!condition()) {
        if (ddprun::Clock::now() > limit) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

}  // namespace ddp::test
