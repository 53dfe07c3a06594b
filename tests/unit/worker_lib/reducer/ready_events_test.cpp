// ReadyEvents over a table of CUDA calls that only notes them: how many calls a backward costs, and in which order.
#include "worker_lib/src/reducer/ready_events.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/reducer/device_gradients.hpp"

using namespace ddp::abi;
using Catch::Contains;
using ddp::Stream;
using ddp::detail::DeviceGradients;
using ddp::detail::GroupDevice;
using ddp::detail::ReadyEvents;

namespace {

std::vector<std::string> calls;  // of the table's functions, which have no context
std::uintptr_t events = 0;
CUstream captured_stream = nullptr;
CUstream foreign_stream = nullptr;  // of another device

template <typename Handle>
Handle handle(std::uintptr_t number) {
    return reinterpret_cast<Handle>(number);
}
template <typename Handle>
std::uintptr_t number(Handle one) {
    return reinterpret_cast<std::uintptr_t>(one);
}

CudaApi noting_table() {
    CudaApi cuda;
    cuda.device_get = [](CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; };
    cuda.device_primary_ctx_retain = [](CUcontext*, CUdevice) { return CUDA_SUCCESS; };
    cuda.device_primary_ctx_release = [](CUdevice) { return CUDA_SUCCESS; };
    cuda.ctx_push_current = [](CUcontext) { return CUDA_SUCCESS; };
    cuda.ctx_pop_current = [](CUcontext*) { return CUDA_SUCCESS; };
    cuda.ctx_get_stream_priority_range = [](int* lowest, int* highest) {
        *lowest = 0;
        *highest = -5;
        return CUDA_SUCCESS;
    };
    cuda.stream_create_with_priority = [](CUstream* stream, unsigned, int priority) {
        calls.push_back(fmt::format("stream of priority {}", priority));
        *stream = handle<CUstream>(9);
        return CUDA_SUCCESS;
    };
    cuda.stream_destroy = [](CUstream) { return CUDA_SUCCESS; };
    cuda.event_create = [](CUevent* event, unsigned) { return *event = handle<CUevent>(++events), CUDA_SUCCESS; };
    cuda.event_destroy = [](CUevent) { return --events, CUDA_SUCCESS; };
    cuda.event_record = [](CUevent event, CUstream stream) {
        calls.push_back(fmt::format("record {} on {}", number(event), number(stream)));
        return stream != nullptr && stream == foreign_stream ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    };
    cuda.stream_is_capturing = [](CUstream stream, CUstreamCaptureStatus* status) {
        const bool captured = stream != nullptr && stream == captured_stream;
        *status = captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    };
    cuda.stream_wait_event = [](CUstream stream, CUevent event, unsigned) {
        calls.push_back(fmt::format("{} waits for {}", number(stream), number(event)));
        return CUDA_SUCCESS;
    };
    return cuda;
}

std::vector<std::string> taken() { return std::exchange(calls, {}); }
using Calls = std::vector<std::string>;

}  // namespace

TEST_CASE("the exchange of buckets is on a stream of the highest priority", "[reducer]") {
    calls.clear();
    const GroupDevice device(noting_table(), 0, ddp::detail::StreamPriority::kHighest);
    CHECK(taken() == Calls{"stream of priority -5"});
    const GroupDevice usual(noting_table(), 0);
    CHECK(taken() == Calls{"stream of priority 0"});
}

TEST_CASE("gradients of one stream cost one event for each bucket", "[reducer]") {
    const auto device = std::make_shared<GroupDevice>(noting_table(), 0);
    calls.clear();
    events = 0;
    {
        ReadyEvents ready(device);
        for (int step = 0; step < 2; ++step) {  // the event is used again
            ready.begin(2);
            for (int mark = 0; mark < 3; ++mark) ready.mark(0, handle<CUstream>(1));
            CHECK(taken().empty());
            ready.wait(0, handle<CUstream>(9));
            CHECK(taken() == Calls{"record 1 on 1", "9 waits for 1"});
            ready.mark(1, handle<CUstream>(1));
            ready.wait(1, handle<CUstream>(9));
            CHECK(taken() == Calls{"record 1 on 1", "9 waits for 1"});
        }
    }
    CHECK(events == 1);
}

TEST_CASE("a bucket waits for each of its streams, up to the stream's last gradient of the bucket", "[reducer]") {
    const auto device = std::make_shared<GroupDevice>(noting_table(), 0);
    calls.clear();
    events = 0;
    ReadyEvents ready(device);
    ready.begin(2);
    ready.mark(0, handle<CUstream>(1));
    ready.mark(0, handle<CUstream>(2));
    ready.mark(1, handle<CUstream>(1));  // stream 1 goes on: what it does from now on does not delay bucket 0
    CHECK(taken() == Calls{"record 1 on 1"});
    ready.wait(0, handle<CUstream>(9));
    CHECK(taken() == Calls{"record 2 on 2", "9 waits for 1", "9 waits for 2"});
    ready.mark(1, handle<CUstream>(2));
    ready.mark(0, handle<CUstream>(1));  // of no bucket that is exchanged again: the next backward forgets it
    CHECK(taken() == Calls{"record 2 on 1"});
    ready.begin(1);
    ready.mark(0, handle<CUstream>(2));
    ready.wait(0, handle<CUstream>(9));
    CHECK(taken() == Calls{"record 2 on 2", "9 waits for 2"});
}

TEST_CASE("a stream whose mark has no event yet, and that is captured now, is found before anything is recorded",
          "[reducer]") {
    const auto device = std::make_shared<GroupDevice>(noting_table(), 0);
    calls.clear();
    ReadyEvents ready(device);
    ready.begin(2);
    ready.mark(0, handle<CUstream>(1));
    captured_stream = handle<CUstream>(1);
    CHECK_THAT(ready.capture_complaint(handle<CUstream>(2)),
               Contains("its stream is being captured into a CUDA graph"));
    CHECK(ready.capture_complaint(handle<CUstream>(1)) == "");  // which its caller has looked at
    captured_stream = nullptr;
    CHECK(ready.capture_complaint(handle<CUstream>(2)) == "");
    CHECK(taken().empty());
    ready.wait(0, handle<CUstream>(9));
    captured_stream = handle<CUstream>(1);
    CHECK(ready.capture_complaint(handle<CUstream>(2)) == "");  // it may be captured now
    captured_stream = nullptr;
}

namespace {

/// Memory of any address: nothing reads it.
class NoArena final : public ddp::Arena {
public:
    void* allocate(std::size_t /*bytes*/) override { return memory_; }

private:
    alignas(256) std::byte memory_[256]{};
};

/// The table, with what kernels and pinned memory need.
CudaApi complete_table() {
    CudaApi cuda = noting_table();
    cuda.module_load_data_ex = [](CUmodule*, const void*, unsigned, CUjit_option*, void**) { return CUDA_SUCCESS; };
    cuda.module_unload = [](CUmodule) { return CUDA_SUCCESS; };
    cuda.module_get_function = [](CUfunction*, CUmodule, const char*) { return CUDA_SUCCESS; };
    cuda.thread_exchange_stream_capture_mode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    cuda.mem_host_alloc = [](void** memory, std::size_t bytes, unsigned) {
        return *memory = std::malloc(bytes), CUDA_SUCCESS;
    };
    cuda.mem_free_host = [](void* memory) { return std::free(memory), CUDA_SUCCESS; };
    cuda.mem_host_get_device_pointer = [](CUdeviceptr* pointer, void* memory, unsigned) {
        return *pointer = ddp::detail::device_pointer(memory), CUDA_SUCCESS;
    };
    cuda.memcpy_async = [](CUdeviceptr, CUdeviceptr, std::size_t, CUstream) { return CUDA_SUCCESS; };
    cuda.get_error_name = [](CUresult, const char** text) { return *text = nullptr, CUDA_SUCCESS; };
    cuda.get_error_string = [](CUresult, const char** text) { return *text = nullptr, CUDA_SUCCESS; };
    return cuda;
}

}  // namespace

// A handle may belong to another stream later, of another device.
TEST_CASE("each backward, with sync or without, looks once at the device of each of its streams", "[reducer]") {
    const GroupDevice group(complete_table(), 0);
    NoArena arena;
    const std::vector<ddp::ParamSpec> params{{"a", 4}};
    const ddp::detail::GradientStorage storage(arena, ddp::Device::Cuda, params, ddp::plan_buckets(params, {}), 128);
    DeviceGradients gradients(group, arena, storage);
    const Stream stream{handle<CUstream>(1)};
    const auto looks = [&](const auto& call) {
        calls.clear();
        call();
        return calls.size();
    };
    CHECK(looks([&] { gradients.check_first(stream, "begin_backward"); }) == 1);
    CHECK(looks([&] { gradients.check(stream, "mark_ready"); }) == 0);
    gradients.begin(stream);
    CHECK(looks([&] { gradients.check(stream, "mark_ready"); }) == 0);
    // The next backward does not synchronise, so that nothing but the check begins it.
    CHECK(looks([&] { gradients.check_first(stream, "begin_backward"); }) == 1);
    CHECK(looks([&] { gradients.check(stream, "mark_ready"); }) == 0);
    foreign_stream = handle<CUstream>(1);
    CHECK_THROWS_WITH(gradients.check_first(stream, "begin_backward"),
                      Contains("begin_backward: the stream belongs to another device"));
    CHECK_THROWS_WITH(gradients.check(stream, "mark_ready"), Contains("belongs to another device"));
    foreign_stream = nullptr;
}
