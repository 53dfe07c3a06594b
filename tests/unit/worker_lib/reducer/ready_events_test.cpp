// ReadyEvents over a table of CUDA calls that only notes them: how many calls a backward costs, and in which order.
#include "worker_lib/src/reducer/ready_events.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/catch.hpp"

using namespace ddp::abi;
using ddp::detail::GroupDevice;
using ddp::detail::ReadyEvents;

namespace {

std::vector<std::string> calls;  // of the table's functions, which have no context
std::uintptr_t events = 0;

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
