// How the NCCL backend treats the program's threads, streams and memory, and the state that CUDA keeps of them.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/flight_record_layout.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"
#include "worker_lib/src/cuda/device_access.hpp"
#include "worker_lib/src/cuda/device_memory.hpp"

using namespace ddp;
using namespace ddp::test;
using Catch::Matchers::Contains;
using ddp::detail::BackendImpl;
using ddp::detail::OpKind;
namespace layout = ddprun::flight_record;

namespace {

/// This process has a flight record, as under ddprun: the library takes it when it makes the first group.
const layout::Memory& own_memory() {
    static layout::Memory* const recorder = [] {
        const int memory = ::memfd_create("test", MFD_ALLOW_SEALING);
        const auto empty = std::make_unique<layout::Memory>();
        const bool made = memory >= 0 && ::write(memory, empty.get(), sizeof *empty) == sizeof *empty &&
                          ::fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
                          ::setenv(layout::kDescriptorVariable, std::to_string(memory).c_str(), 1) == 0;
        if (!made) std::abort();
        return static_cast<layout::Memory*>(
            ::mmap(nullptr, sizeof *empty, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    }();
    return *recorder;
}
[[maybe_unused]] const layout::Memory& made_before_any_group = own_memory();

/// Counts the group's operations that readers of the flight record find, and returns its newest number.
std::pair<int, std::uint64_t> called(const std::string& group) {
    int operations = 0;
    std::uint64_t queued = 0;
    layout::Group found;
    for (const layout::GroupSlot& slot : own_memory().groups) {
        if (!slot.group.load(found) || found.live == 0 || std::string_view(found.name.data()) != group) continue;
        queued = slot.queued;
        for (const layout::OperationSlot& entry : own_memory().operations) {
            layout::Operation one;
            if (entry.operation.load(one) && one.id == entry.id && one.group == found.id) ++operations;
        }
    }
    return {operations, queued};
}

}  // namespace

TEST_CASE("nccl: what the program captures into a CUDA graph meanwhile is left alone", "[nccl]") {
    FakeGroup group(1);
    auto backend = group.backend(0);
    const CUstream stream = group.gpu.make_stream();
    const auto gate = group.gpu.close_gate(stream);
    std::vector<float> values(3);
    auto wanted = all_reduce(values, ReduceOp::Sum);
    wanted.stream.handle = stream;
    auto work = submit(*backend, ddp::detail::Operation(wanted));
    group.gpu.capturing = true;
    const int before = group.gpu.counts().queries;
    CHECK(eventually([&] { return group.gpu.counts().queries > before + 10; }));
    gate->store(true);
    CHECK(outcome_of([&] { wait_host(*work); }).text == "");
    backend.reset();
    work.reset();
    CHECK(group.gpu.counts().broken_captures == 0);
    group.gpu.capturing = false;
    require_nothing_left(group);
}

TEST_CASE("nccl: a call on a stream that is being captured is refused, and the group stays usable", "[nccl]") {
    FakeGroup group(1);
    ProcessGroup world = group.world(0);
    const Stream stream{group.gpu.make_stream()};
    std::vector<float> values(3, 1.0f), other(3, 0.0f);
    const Buffer buffer = device_buffer(values), received = device_buffer(other);
    group.gpu.capture(static_cast<CUstream>(stream.handle), true);
    const Outcome collective = outcome_of([&] { (void)world.all_reduce(buffer, ReduceOp::Sum, {.stream = stream}); });
    CHECK(collective.code == ErrorCode::InvalidArgument);
    CHECK_THAT(collective.text, Contains("#1 all_reduce sum f32[3]: its stream is being captured into a CUDA graph"));
    const Outcome message =
        outcome_of([&] { (void)world.batch().send(buffer, 0).recv(received, 0).start({.stream = stream}); });
    CHECK(message.code == ErrorCode::InvalidArgument);
    CHECK(called("world") == std::pair(0, std::uint64_t{0}));  // a peer that waits for #1 waits for this rank
    group.gpu.capture(static_cast<CUstream>(stream.handle), false);
    world.all_reduce(buffer, ReduceOp::Sum, {.stream = stream}).wait_host();
    CHECK(called("world") == std::pair(1, std::uint64_t{1}));
    CHECK(group.gpu.counts().aborts == 0);
}

TEST_CASE("nccl: a call on the default stream is refused while a stream that waits for it is captured", "[nccl]") {
    FakeGroup group(1);
    ProcessGroup world = group.world(0);
    std::vector<float> values(3, 1.0f);
    const Buffer buffer = device_buffer(values);
    const CUstream elsewhere = group.gpu.make_stream(5, true), apart = group.gpu.make_stream(0);
    group.gpu.capture(elsewhere, true);
    group.gpu.capture(apart, true);
    world.all_reduce(buffer, ReduceOp::Sum).wait_host();  // neither has to do with device 0's default stream
    const CUstream blocking = group.gpu.make_stream(0, true);
    group.gpu.capture(blocking, true);
    const Outcome refused = outcome_of([&] { (void)world.all_reduce(buffer, ReduceOp::Sum); });
    CHECK(refused.code == ErrorCode::InvalidArgument);
    CHECK_THAT(refused.text, Contains("#2 all_reduce sum f32[3]: it is on the default stream, which cannot be used "
                                      "while a stream that waits for it is being captured into a CUDA graph"));
    world.barrier().wait();  // is on no stream of the caller's
    group.gpu.capture(blocking, false);
    world.all_reduce(buffer, ReduceOp::Sum).wait_host();
    CHECK(group.gpu.counts().broken_captures == 0);
}

TEST_CASE("nccl: a capture in which a stream waits for an earlier operation is left alone: that wait is refused",
          "[nccl]") {
    FakeGroup group(1);
    ProcessGroup world = group.world(0);
    const bool on_default_stream = GENERATE(false, true);
    const CUstream captured = group.gpu.make_stream(0, true);
    const CUstream waiting = on_default_stream ? nullptr : captured;
    std::vector<float> values(3, 1.0f);
    const auto gate = group.gpu.close_gate(waiting);
    Work work = world.all_reduce(device_buffer(values), ReduceOp::Sum, {.stream = {waiting}});
    group.gpu.capture(captured, true);
    const Outcome refused = outcome_of([&] { work.wait(); });
    CHECK(refused.code == ErrorCode::InvalidArgument);
    CHECK_THAT(refused.text, Contains("#1 all_reduce sum f32[3]: ") && Contains("being captured into a CUDA graph") &&
                                 Contains("before or after the capture"));
    group.gpu.capture(captured, false);
    CHECK(group.gpu.counts().broken_captures == 0);
    work.wait();
    gate->store(true);
    work.wait_host();
    CHECK(group.gpu.counts().aborts == 0);
}

TEST_CASE("nccl: the default stream that waits is that of the group's device, whatever the caller's current one",
          "[nccl]") {
    FakeGroup group(1);
    const auto backend = group.backend(0);
    group.gpu.frozen_ranks = {0};
    FakeGpu::set_current(3);
    std::vector<float> values(3);
    submit(*backend, all_reduce(values, ReduceOp::Sum))->wait();
    CHECK(group.gpu.advance(nullptr));
    FakeGpu::set_current(0);
    CHECK_FALSE(group.gpu.advance(nullptr));
}

TEST_CASE("nccl: a rank on device 3 starts no other, whichever threads call and end it", "[nccl]") {
    FakeGroup group(1);
    group.first_device = 3;
    std::unique_ptr<BackendImpl> backend;
    std::shared_ptr<detail::WorkState> work;
    const auto on_fresh_thread = [&](const std::function<void()>& body) {
        bool left_without = false;
        const auto outcome = std::async(std::launch::async, [&] {
                                 const Outcome met = outcome_of(body);
                                 left_without = !FakeGpu::current_device().has_value();
                                 return met;
                             }).get();
        CHECK(outcome.text == "");
        CHECK(left_without);
    };
    std::vector<float> values(3);
    on_fresh_thread([&] { backend = group.backend(0); });
    on_fresh_thread([&] { (void)backend->arena().allocate(10); });
    on_fresh_thread([&] { (work = submit(*backend, all_reduce(values, ReduceOp::Sum)))->wait(); });
    on_fresh_thread([&] { wait_host(*work); });
    on_fresh_thread([&] { backend.reset(); });
    on_fresh_thread([&] { work.reset(); });  // the last owner of the stream
    require_nothing_left(group);
    CHECK(group.gpu.contexts() == std::set{3});
}

TEST_CASE("nccl: the device that a thread has chosen is its current one again after a call", "[nccl]") {
    FakeGroup group(1);
    FakeGpu::set_current(5);
    const auto backend = group.backend(0);
    submit(*backend, operation(OpKind::kBarrier, 1))->wait();
    CHECK(FakeGpu::current_device() == 5);
}

TEST_CASE("nccl: a group's memory is freed with its device as the current one", "[nccl]") {
    FakeGroup group(2);
    require_success(group.run([](int, BackendImpl& backend) { (void)backend.arena().allocate(10); }));
    require_nothing_left(group);
}

TEST_CASE("nccl: CUDA's reason is in the error", "[nccl]") {
    FakeGroup group(1);
    const auto backend = group.backend(0);
    group.gpu.refuses_memory = true;
    CHECK_THAT(outcome_of([&] { (void)backend->arena().allocate(10); }).text,
               Contains("no room for 10 bytes on CUDA device 0: as scripted (CUDA_ERROR_OUT_OF_MEMORY)"));
    group.gpu.devices = 0;
    CHECK(detail::count_devices(group.gpu.api().cuda).error().message == "there is no CUDA device");
}

TEST_CASE("nccl: a device that is opened for copies is current on no thread afterwards", "[nccl]") {
    FakeGpu gpu;
    const auto device = detail::open_device(gpu.api().cuda, 3);
    const auto gate = gpu.close_gate(static_cast<CUstream>(device->stream().handle));
    device->mark();
    CHECK_FALSE(device->passed());
    gate->store(true);
    CHECK(device->passed());
    CHECK_FALSE(FakeGpu::current_device().has_value());
}

TEST_CASE("nccl: memory of a device is known as such while a group uses one", "[nccl]") {
    FakeGroup group(1);
    std::vector<float> host(3), foreign(3);
    group.gpu.other_memory = {{foreign.data(), 5}};
    CHECK_FALSE(detail::device_holding(foreign.data()));  // no driver is asked
    {
        ProcessGroup world = group.world(0);
        CHECK(detail::device_holding(foreign.data()) == std::optional(5));
        CHECK_FALSE(detail::device_holding(host.data()));
        CHECK_FALSE(detail::device_holding(nullptr));
        const Outcome refused = outcome_of([&] { world.all_reduce(foreign, ReduceOp::Sum).wait(); });
        CHECK_THAT(refused.text, Contains("the buffer says host memory, and is memory of CUDA device 5. Pass "
                                          "Device::Cuda with it, as in Buffer(pointer, count, Device::Cuda)"));
        CHECK_THAT(outcome_of([&] { world.send(host, 0).wait(); }).text,
                   Contains("the buffer is host memory, and the"));
    }
    CHECK_FALSE(detail::device_holding(foreign.data()));
}

TEST_CASE("nccl: arguments that only CUDA knows to be wrong are refused, and the group stays usable", "[nccl]") {
    FakeGroup group(1);
    ProcessGroup world = group.world(0);
    std::vector<float> values(3, 1.0f), host(3), foreign(3);
    const Buffer buffer = device_buffer(values);
    group.gpu.other_memory = {{host.data(), -1}, {foreign.data(), 5}};
    const auto refused = [&](const std::function<Work()>& call) {
        const Outcome outcome = outcome_of([&] { (void)call(); });
        CHECK(outcome.code == ErrorCode::InvalidArgument);
        return outcome.text;
    };
    CHECK_THAT(refused([&] { return world.all_reduce(device_buffer(host), ReduceOp::Sum); }),
               Contains("#1 all_reduce sum f32[3]: the buffer says Device::Cuda, but CUDA knows no memory there"));
    CHECK_THAT(refused([&] { return world.all_gather(buffer, device_buffer(foreign)); }),
               Contains("the output is memory of CUDA device 5; this rank uses CUDA device 0"));
    CHECK_THAT(refused([&] { return world.batch().send(buffer, 0).recv(device_buffer(host), 0).start(); }),
               Contains("the buffer from rank 0 says Device::Cuda"));
    CHECK_THAT(
        refused([&] { return world.all_reduce(buffer, ReduceOp::Sum, {.stream = {group.gpu.make_stream(5)}}); }),
        Contains("#1 all_reduce sum f32[3]: the stream belongs to another device; this rank uses CUDA device 0"));
    world.all_reduce(buffer, ReduceOp::Sum).wait_host();
    CHECK(group.gpu.counts().aborts == 0);
}
