// Uses NCCL in one way, most often in one that the fake reports. Ranks are threads. Ends with 0 if nothing was
// reported.
//
// usage: fake_nccl_scenarios SCENARIO

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/nccl/api.hpp"

namespace {

using namespace ddp::abi;
using namespace std::chrono_literals;
using ddp::detail::DeviceScope;
using ddp::detail::GpuApi;
using ddp::detail::GroupDevice;

const GpuApi& gpu() {
    static const GpuApi api = [] {
        GpuApi loaded = ddp::detail::load_gpu_api().value();
        (void)ddp::detail::count_devices(loaded.cuda).value();
        return loaded;
    }();
    return api;
}

ncclUniqueId new_id() {
    ncclUniqueId id{};
    if (gpu().nccl.get_unique_id(&id) != ncclSuccess) throw std::runtime_error("no unique id");
    return id;
}

/// One rank, with its device, a stream and 4 KiB of memory.
class Rank {
public:
    explicit Rank(int device) : device_(gpu().cuda, device), scope_(device_), memory_(allocate()) {}

    /// Makes the device the current one of another thread while the result lives.
    [[nodiscard]] DeviceScope enter() const { return DeviceScope(device_); }
    [[nodiscard]] CUstream stream() const { return device_.stream(); }
    [[nodiscard]] void* memory() const { return memory_; }
    [[nodiscard]] void* allocate() {
        CUdeviceptr block = 0;
        ddp::detail::check_cuda(gpu().cuda, gpu().cuda.mem_alloc(&block, 4096), "cuMemAlloc");
        return reinterpret_cast<void*>(block);
    }
    void record_event() {
        const CUevent event = device_.acquire_event();
        (void)gpu().cuda.event_record(event, stream());
        device_.release(event);
    }

    void fill(int value) {
        const auto filled = gpu().cuda.memset_d8_async(ddp::detail::device_pointer(memory_),
                                                       static_cast<unsigned char>(value), 4096, stream());
        ddp::detail::check_cuda(gpu().cuda, filled, "cuMemsetD8Async");
    }
    [[nodiscard]] std::vector<unsigned char> read(std::size_t bytes) {
        std::vector<unsigned char> values(bytes);
        (void)gpu().cuda.memcpy_async(ddp::detail::device_pointer(values.data()), ddp::detail::device_pointer(memory_),
                                      bytes, stream());
        if (!passes_within(60s)) throw std::runtime_error("the copy did not end");
        return values;
    }
    /// Returns whether the stream ends its current work in this time.
    [[nodiscard]] bool passes_within(std::chrono::milliseconds time) {
        const CUevent done = device_.acquire_event();
        (void)gpu().cuda.event_record(done, stream());
        const auto limit = std::chrono::steady_clock::now() + time;
        bool passed = false;
        while (!passed && std::chrono::steady_clock::now() < limit) {
            passed = gpu().cuda.event_query(done) == CUDA_SUCCESS;
            if (!passed) std::this_thread::sleep_for(1ms);
        }
        device_.release(done);
        return passed;
    }
    /// Makes this stream wait for what the other one has to do.
    void wait_for(Rank& other) {
        const CUevent event = other.device_.acquire_event();
        (void)gpu().cuda.event_record(event, other.stream());
        (void)gpu().cuda.stream_wait_event(stream(), event, 0);
        other.device_.release(event);
    }
    /// Waits for the device in a way that orders nothing.
    void finish_unseen() {
        CUdeviceptr block = 0;
        ddp::detail::check_cuda(gpu().cuda, gpu().cuda.mem_alloc(&block, 1), "cuMemAlloc");
        (void)gpu().cuda.mem_free(block);
    }

private:
    GroupDevice device_;
    const DeviceScope scope_;
    void* const memory_;
};

/// Polls until the communicator is not in progress any more.
ncclResult_t settled(ncclComm_t comm, ncclResult_t result) {
    for (; result == ncclInProgress; std::this_thread::sleep_for(1ms))
        if (gpu().nccl.comm_get_async_error(comm, &result) != ncclSuccess) break;
    return result;
}

ncclComm_t join(const ncclUniqueId& id, int ranks, int rank, bool blocking = false) {
    ncclConfig_t config;
    config.blocking = blocking ? 1 : 0;
    ncclComm_t comm = nullptr;
    if (settled(comm, gpu().nccl.comm_init_rank_config(&comm, ranks, id, rank, &config)) != ncclSuccess &&
        comm == nullptr)
        throw std::runtime_error("init failed");
    if (settled(comm, ncclInProgress) != ncclSuccess) throw std::runtime_error("init failed later");
    return comm;
}

ncclComm_t join_alone(bool blocking = false) { return join(new_id(), 1, 0, blocking); }

ncclResult_t all_reduce(ncclComm_t comm, void* memory, CUstream stream, std::size_t count = 100) {
    return gpu().nccl.all_reduce(memory, memory, count, ncclFloat32, ncclSum, comm, stream);
}

void end(ncclComm_t comm) {
    (void)settled(comm, gpu().nccl.comm_finalize(comm));
    (void)gpu().nccl.comm_destroy(comm);
}

/// A correct use, so that a report is not due to what the cases share.
void nothing() {
    Rank rank(0);
    const ncclComm_t comm = join_alone();
    for (int i = 0; i < 3; ++i) (void)settled(comm, all_reduce(comm, rank.memory(), rank.stream()));
    end(comm);
}

/// Two ranks sum what their own streams have filled, and read the sum on the host. With `ordered` an event orders the
/// streams, before and after the operation. Without it, only the host's wait makes the result right.
void sum_of_filled(bool ordered) {
    constexpr std::size_t kCount = 1000;
    const ncclUniqueId id = new_id();
    const auto on_rank = [&](int number) {
        Rank own(number), group(number);
        const ncclComm_t comm = join(id, 2, number);
        own.fill(1 + number);
        ordered ? group.wait_for(own) : own.finish_unseen();
        ncclResult_t result =
            gpu().nccl.all_reduce(own.memory(), own.memory(), kCount, ncclUint8, ncclSum, comm, group.stream());
        if (settled(comm, result) != ncclSuccess) throw std::runtime_error("no all_reduce");
        ordered ? own.wait_for(group) : group.finish_unseen();
        const std::vector<unsigned char> sum = own.read(kCount);
        if (sum != std::vector<unsigned char>(kCount, 3)) throw std::runtime_error("the sum is wrong");
        end(comm);
    };
    auto other = std::async(std::launch::async, on_rank, 1);
    on_rank(0);
    other.get();
}

/// A small message, which the native backend could store, stays in flight until its receiver takes it.
void send_before_receive() {
    const ncclUniqueId id = new_id();
    std::promise<void> looked;
    const auto on_rank = [&](int number) {
        Rank rank(number);
        const ncclComm_t comm = join(id, 2, number);
        const auto run = [&](auto function) {
            if (settled(comm, function(rank.memory(), 1, ncclInt8, 1 - number, comm, rank.stream())) != ncclSuccess)
                throw std::runtime_error("the message was refused");
        };
        if (number == 0) {
            run(gpu().nccl.send);
            const bool ended = rank.passes_within(200ms);
            looked.set_value();
            if (ended) throw std::runtime_error("the send ended without its receive");
        } else {
            looked.get_future().wait();
            run(gpu().nccl.recv);
        }
        if (!rank.passes_within(60s)) throw std::runtime_error("the message did not end");
        end(comm);
    };
    auto other = std::async(std::launch::async, on_rank, 1);
    on_rank(0);
    other.get();
}

void two_threads() {
    Rank rank(0);
    const ncclComm_t comm = join_alone(true);
    std::thread([&] {
        const DeviceScope scope = rank.enter();
        (void)all_reduce(comm, rank.memory(), rank.stream());  // blocks, by a fault
    }).detach();
    const auto limit = std::chrono::steady_clock::now() + 30s;
    ncclResult_t error = ncclSuccess;
    while (std::chrono::steady_clock::now() < limit) (void)gpu().nccl.comm_get_async_error(comm, &error);
    std::_Exit(0);  // the other thread does not end
}

void open_group() {
    Rank rank(0);
    const ncclComm_t comm = join_alone();
    std::thread([&] {
        const DeviceScope scope = rank.enter();
        (void)gpu().nccl.group_start();
        (void)all_reduce(comm, rank.memory(), rank.stream());
    }).join();
}

void left_open_group() {
    Rank rank(0);
    const ncclComm_t comm = join_alone();
    std::thread([&] {
        const DeviceScope scope = rank.enter();
        ncclConfig_t config;
        ncclComm_t failed = nullptr;
        (void)gpu().nccl.comm_init_rank_config(&failed, 1, ncclUniqueId{}, 0, &config);  // that is no unique id
        (void)all_reduce(comm, rank.memory(), rank.stream());  // goes into the group that the init has left open
    }).join();
}

void two_communicators_in_a_group() {
    Rank rank(0);
    const ncclComm_t first = join_alone(), second = join_alone();
    (void)gpu().nccl.group_start();
    (void)all_reduce(first, rank.memory(), rank.stream());
    (void)all_reduce(second, rank.memory(), rank.stream());
}

void call_in_progress() {
    Rank rank(0);
    const ncclComm_t comm = join_alone();
    (void)all_reduce(comm, rank.memory(), rank.stream());
    (void)all_reduce(comm, rank.memory(), rank.stream());
}

void event_during_launch() {
    Rank rank(0);
    const ncclComm_t comm = join_alone();
    const ncclResult_t result = all_reduce(comm, rank.memory(), rank.stream());
    rank.record_event();
    (void)settled(comm, result);
}

/// A thread that frees memory waits for the streams of all devices, and puts nothing on them.
void free_during_launch() {
    Rank rank(0);
    const ncclComm_t comm = join_alone();
    const ncclResult_t result = all_reduce(comm, rank.memory(), rank.stream());
    rank.finish_unseen();
    (void)settled(comm, result);
    end(comm);
}

void different_orders() {
    const ncclUniqueId first_id = new_id(), second_id = new_id();
    const auto on_rank = [&](int number) {
        Rank rank(number);
        Rank other_stream(number);
        ncclComm_t first = join(first_id, 2, number), second = join(second_id, 2, number);
        const std::vector<ncclComm_t> order = number == 0 ? std::vector{first, second} : std::vector{second, first};
        for (const ncclComm_t comm : order) {
            Rank& used = comm == first ? rank : other_stream;
            (void)settled(comm, all_reduce(comm, used.memory(), used.stream()));
        }
        end(first);
        end(second);
    };
    auto other = std::async(std::launch::async, on_rank, 1);
    on_rank(0);
    other.get();
}

void host_buffer() {
    Rank rank(0);
    std::vector<float> values(100);
    (void)all_reduce(join_alone(), values.data(), rank.stream());
}

void buffer_of_another_device() {
    Rank other(1);
    Rank rank(0);
    (void)all_reduce(join_alone(), other.memory(), rank.stream());
}

void buffer_that_is_too_small() {
    Rank rank(0);
    (void)all_reduce(join_alone(), rank.memory(), rank.stream(), 100'000'000);
}

void stream_of_another_device() {
    Rank other(1);
    Rank rank(0);
    (void)all_reduce(join_alone(), rank.memory(), other.stream());
}

void call_after_abort() {
    Rank rank(0);
    const ncclComm_t comm = join_alone();
    (void)gpu().nccl.comm_abort(comm);
    (void)all_reduce(comm, rank.memory(), rank.stream());
}

void second_abort() {
    Rank rank(0);
    const ncclComm_t comm = join_alone();
    (void)gpu().nccl.comm_abort(comm);
    (void)gpu().nccl.comm_abort(comm);
}

void call_after_finalize() {
    Rank rank(0);
    const ncclComm_t comm = join_alone();
    (void)settled(comm, gpu().nccl.comm_finalize(comm));
    (void)all_reduce(comm, rank.memory(), rank.stream());
}

void destroy_before_finalize() {
    Rank rank(0);
    (void)gpu().nccl.comm_destroy(join_alone());
}

}  // namespace

int main(int argc, char** argv) {
    const std::map<std::string, std::function<void()>> cases{
        {"nothing", nothing},
        {"order", [] { sum_of_filled(true); }},
        {"send before receive", send_before_receive},
        {"no order", [] { sum_of_filled(false); }},
        {"two threads", two_threads},
        {"open group", open_group},
        {"left open group", left_open_group},
        {"two communicators in a group", two_communicators_in_a_group},
        {"call in progress", call_in_progress},
        {"event during launch", event_during_launch},
        {"free during launch", free_during_launch},
        {"different orders", different_orders},
        {"host buffer", host_buffer},
        {"buffer of another device", buffer_of_another_device},
        {"buffer that is too small", buffer_that_is_too_small},
        {"stream of another device", stream_of_another_device},
        {"call after abort", call_after_abort},
        {"second abort", second_abort},
        {"call after finalize", call_after_finalize},
        {"destroy before finalize", destroy_before_finalize},
    };
    try {
        cases.at(argc == 2 ? argv[1] : "")();
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        fmt::print(stderr, "fake_nccl_scenarios: {}\n", error.what());
        return EXIT_FAILURE;
    }
}
